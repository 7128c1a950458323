"""Token counts from a file: text with one a line, a column of CSV or Parquet, or a NumPy array.

A column of lists, such as `input_ids` of a tokenised data set, counts the elements of each list.
"""

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet

from lmsweep.trials.spec.errors import RequestError

Lengths = NDArray[np.int64]

USUAL_COLUMNS = ("lengths", "length", "num_tokens", "n_tokens", "tokens", "input_ids")
"""Columns that are read where none is named, the first that a file has."""
HOW_TO_COUNT = "docs/lengths.md says how to count the tokens of texts"


def counts_in(path: Path, column: str | None) -> Lengths:
    """Return the tokens of each document. Raises RequestError if the file cannot be read, or has other things in it."""
    try:
        status = path.stat()
    except OSError as error:
        raise RequestError(f"lengths: cannot read {path}: {error.strerror}") from None
    return _counts_in(path, column, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)  # of a plan, many trials have one file
def _counts_in(path: Path, column: str | None, changed: int, size: int) -> Lengths:
    if size == 0:
        raise RequestError(f"lengths: {path} is empty; it needs the tokens of at least one document")
    try:
        counts = _READERS.get(path.suffix, _of_text)(path, column)
    except RequestError:  # a ValueError, too
        raise
    except (OSError, ValueError, EOFError) as error:  # Arrow's errors are ValueErrors
        raise RequestError(f"lengths: {path}: {_said(error)}; {HOW_TO_COUNT}") from None
    if not len(counts):
        raise RequestError(f"lengths: {path} has no rows; it needs the tokens of at least one document")
    if (least := counts.min()) < 1:
        row = int(counts.argmin()) + 1
        raise RequestError(f"lengths: {path}, row {row}: {least} tokens; leave out documents without tokens")
    counts.setflags(write=False)
    return counts


@lru_cache(maxsize=8)
def _digest(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def digest_of(path: Path) -> str:
    """Return 12 hexadecimal digits that identify the content of a file that has been read."""
    status = path.stat()
    return _digest(path, status.st_mtime_ns, status.st_size)


def _of_text(path: Path, column: str | None) -> Lengths:
    if column is not None:
        raise RequestError(f"lengths: {path} is text with a number a line, which has no column {column}")
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=["tokens"], use_threads=False),  # errors name the row
        parse_options=csv.ParseOptions(delimiter="\x1f", quote_char=False),  # which no line has: one column
        convert_options=csv.ConvertOptions(column_types={"tokens": pa.int64()}, null_values=[]),
    )
    return _as_counts(table["tokens"], path, None)


def _of_csv(path: Path, column: str | None) -> Lengths:
    tabs = csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
    with path.open() as file:
        names = next(iter(file), "").rstrip("\n").split(tabs.delimiter)
    if len(names) == 1 and names[0].strip().isdigit() and column is None:
        return _of_text(path, None)  # without a header
    chosen = _chosen([name.strip(' "\r') for name in names], path, column)
    options = csv.ConvertOptions(include_columns=[chosen], column_types={chosen: pa.int64()})
    reading = csv.ReadOptions(use_threads=False)
    return _as_counts(csv.read_csv(path, reading, tabs, options)[chosen], path, chosen)


def _of_parquet(path: Path, column: str | None) -> Lengths:
    chosen = _chosen(parquet.read_schema(path).names, path, column)
    return _as_counts(parquet.read_table(path, columns=[chosen])[chosen], path, chosen)


def _of_numpy(path: Path, column: str | None) -> Lengths:
    if column is not None:
        raise RequestError(f"lengths: {path} is one array, which has no column {column}")
    with path.open("rb") as file:
        found = np.lib.format.read_array(file, allow_pickle=False)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        kind = f"an array of {found.dtype} with {found.ndim} dimensions"
        raise RequestError(f"lengths: {path} holds {kind}; it needs one dimension of whole numbers")
    return found.astype(np.int64)


_READERS = {".csv": _of_csv, ".tsv": _of_csv, ".parquet": _of_parquet, ".npy": _of_numpy}
"""Suffix of a file -> what reads it; of other suffixes, it is text."""


def _chosen(names: list[str], path: Path, column: str | None) -> str:
    if column is None and len(names) == 1:
        return names[0]
    usual = [name for name in USUAL_COLUMNS if name in names]
    chosen = column or (usual[0] if usual else None)
    if chosen not in names:
        what = f"no column {chosen}" if chosen else "several columns"
        raise RequestError(f"lengths: {path} has {what}; write {path.name}:COLUMN (one of: {', '.join(names[:20])})")
    return chosen


def _as_counts(column: pa.ChunkedArray, path: Path, name: str | None) -> Lengths:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        column = pc.list_value_length(column)
    elif not pa.types.is_integer(kind):
        raise RequestError(f"lengths: column {name} of {path} has {kind}, not whole numbers; {HOW_TO_COUNT}")
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py() + 1
        raise RequestError(f"lengths: {path}, row {row}: no number; leave out documents without tokens")
    counts: Lengths = column.cast(pa.int64()).to_numpy().astype(np.int64)
    return counts


def _said(error: Exception) -> str:
    """Return what an error of Arrow's or NumPy's says, on one line without its class."""
    return str(error).removeprefix("In CSV column #0: ").splitlines()[0][:160] if str(error) else type(error).__name__
