"""Every number of the published reports and of public benchmarks as printed, from the stores and what is in none."""

from collections.abc import Iterable
from importlib.resources import files

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lmsweep.analysis import reference
from lmsweep.trials.results.flag_meanings import CONDITIONS, INFERENCE

_TYPES = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


def public_benchmarks() -> pd.DataFrame:
    """One row for each number, in seconds; columns as in SOURCES.md. Null: the source does not state it."""
    rows = _rows_of("public-benchmarks")
    phase = rows["phase"].mask((rows["mode"] == "forward_backward") & (rows["phase"] == "step"), "forward_backward")
    named = zip(rows["sweep"], rows["implementation"], strict=True)
    return rows.assign(
        source=[sweep.removesuffix(f", {implementation}") for sweep, implementation in named],
        hardware=rows["device_name"],
        phase=phase,
        value=rows["samples"].str[0],
        **_as_columns(rows["flags"], [name for name in CONDITIONS if name != INFERENCE]),
    )


def _rows_of(name: str) -> pd.DataFrame:
    """The rows of a store of published numbers, with the columns that are no part of a store's schema."""
    with files(reference).joinpath(name, "measurements", "measurements.parquet").open("rb") as file:
        rows: pd.DataFrame = pq.read_table(file).to_pandas(types_mapper=_TYPES.get)
    return rows


def _as_columns(flags: pd.Series, names: Iterable[str]) -> pd.DataFrame:
    return pd.DataFrame({name: [name in words for words in flags] for name in names}, flags.index)
