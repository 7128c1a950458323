"""Which rows of a store's files count: those that this lmsweep can have written, because tables and plans trust their
columns, and each of them once, however many files hold it."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import ARGUMENTS, AUTO_FIELDS, COUNTS, LARGEST_COUNT
from lmsweep.trials.spec.words import GPU_DEVICES

ATTEMPT = "attempt_id"
"""By it repeats are found: two files with the same row have an attempt in common."""

MAY_BE_0 = ("d_model", "vocab_size", "warmup_steps")
"""The first two in rows without a model, of collectives, and of a model that only the user's own code knows."""
LONGEST_NAME = 1000
"""Characters of a name: tables show it in every cell."""
NAMES = ("sweep", "workload", "model", "phase", "metric", "unit", "device_name", "torch_version")
DEVICES = ("cpu", "mps", *GPU_DEVICES)
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)

CHECKED = tuple(dict.fromkeys(("status", "device", "started_at", *NAMES, *COUNTS, *AUTO_FIELDS, *ARGUMENTS.values())))
"""Columns that are checked even if others are asked for: a row counts everywhere, or nowhere."""


def wrong_column(found: pa.Schema, wanted: pa.Schema) -> str | None:
    """Return which column has values of another kind than wanted; None if all can be cast."""
    for field in wanted:
        if field.name in found.names and not _fits(kind := found.field(field.name).type, field.type):
            return f"its column {field.name} has the type {str(kind)[:60]}"
    return None


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_null(found):
        return True
    if pa.types.is_dictionary(found):
        return _fits(found.value_type, wanted)
    if pa.types.is_list(wanted):
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and _fits(found.value_type, wanted.value_type)
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if pa.types.is_integer(wanted) or pa.types.is_floating(wanted):
        return bool(pa.types.is_integer(found) or pa.types.is_floating(found))
    return bool(found.id == wanted.id)


def wrong_rows(table: pa.Table) -> tuple[pa.ChunkedArray | None, str]:
    """Return which rows cannot be ours, and an example of what is wrong; None and nothing if all can."""
    wrong, example = None, ""
    for is_wrong, words in _checks(table):
        mask = pc.fill_null(is_wrong, False)
        if pc.any(mask).as_py():
            example = example or words(pc.index(mask, True).as_py())
            wrong = mask if wrong is None else pc.or_(wrong, mask)
    if wrong is None:
        return None, ""
    count = pc.sum(wrong).as_py()
    return wrong, f"{count} of its {len(table)} rows are none of this lmsweep's: {example}"


def _checks(table: pa.Table) -> Iterator[tuple[pa.ChunkedArray, Callable[[int], str]]]:
    """Yield for each check which rows fail it, and a function that says what is wrong with a row."""
    for name in table.column_names:
        column = table.column(name)
        words = partial(_said, name, column)
        if name == "status":
            yield pc.invert(pc.is_in(column, pa.array([one.value for one in Status]))), words
        if name == "device":  # `cuda:H100` is one, and a published number may name none
            is_known = pc.is_in(pc.replace_substring_regex(column, ":.*", ""), pa.array(DEVICES))
            yield pc.and_(pc.invert(is_known), pc.is_valid(column)), words
        if name == "device_name":
            yield pc.is_null(column), words
        if name == "started_at":
            yield pc.or_(pc.less(column, pa.scalar(EARLIEST)), pc.greater(column, pa.scalar(LATEST))), words
        if name in COUNTS or name in AUTO_FIELDS:
            least = 0 if name in MAY_BE_0 else 1
            yield pc.or_(pc.less(column, least), pc.greater(column, LARGEST_COUNT)), words
        if name in ARGUMENTS.values():
            wrong = [text for text in pc.unique(column).to_pylist() if text is not None and not _is_mapping(text)]
            yield pc.is_in(column, pa.array(wrong, pa.string())), words
        if name in NAMES:
            yield pc.greater(pc.utf8_length(column), LONGEST_NAME), words


def _said(name: str, column: pa.ChunkedArray, row: int) -> str:
    value = column.slice(row, 1).cast(pa.string()).to_pylist()[0]
    return f"{name} is {'null' if value is None else repr(value[:60])}"


def _is_mapping(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class RowsOnce:
    """The rows of files, in the order in which they are added, each once.

    Files hold the same rows after a crash between the two halves of a merge, after two merges of a remote store at
    once, and after somebody has copied files of one store into another. No file says which others count: whoever writes
    to a store could then hide the rows of others.
    """

    def __init__(self, schema: pa.Schema) -> None:
        assert ATTEMPT in schema.names
        self._parts = [schema.empty_table()]
        self._attempts: set[str] = set()

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables(self._parts)

    def add(self, files: Sequence[pa.Table]) -> None:
        """Add the rows of these files without those that an earlier file holds."""
        attempts = [pc.unique(file[ATTEMPT]).to_pylist() for file in files]
        distinct = {attempt for of_file in attempts for attempt in of_file}
        if len(files) > 1 and sum(map(len, attempts)) > len(distinct):
            for file in files:
                self.add([file])
            return
        # Merged, because the table of a fragment takes a hundred times the memory of its rows. The empty part gives the
        # columns if there are no files.
        table = pa.concat_tables([self._parts[0], *files]).combine_chunks()
        if again := distinct & self._attempts:
            table = self._without_rows_of(table, pa.array(sorted(again), pa.string()))
        self._attempts |= distinct
        self._parts.append(table)

    def _without_rows_of(self, table: pa.Table, attempts: pa.Array) -> pa.Table:
        """Return the table without the rows of these attempts that are there already."""
        before = self.table
        before = before.filter(pc.is_in(before[ATTEMPT], attempts))
        repeats = pc.is_in(table[ATTEMPT], attempts)
        if before.sort_by(ATTEMPT).equals(table.filter(repeats).sort_by(ATTEMPT)):  # usual: in the same order
            return table.filter(pc.invert(repeats))
        known = set(map(repr, before.to_pylist()))  # repr: a row holds lists, and NaN, which is not equal to itself
        return table.filter(pa.array([repr(row) not in known for row in table.to_pylist()], pa.bool_()))
