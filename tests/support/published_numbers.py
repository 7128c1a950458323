"""Every number of the published reports and of public benchmarks as printed, from the stores and what is in none."""

from collections.abc import Iterable
from importlib.resources import files

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lmsweep.analysis import reference
from lmsweep.analysis.reference import CAVEATS, CONDITIONS, INFERENCE

UNNAMED = "not stated"

_TYPES = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


def published() -> pd.DataFrame:
    """One row for each number of the reports, in SI units; columns as in SOURCES.md. Null: not stated.

    A value is null unless status is ok, and for the metric dtype, whose answer is the column dtype.
    """
    stored = _rows_of("published")
    named = stored["sweep"].str.split(" ", n=1)
    inferred = stored["inferred"].str.split(",")
    caveats = _as_columns(stored["flags"], CAVEATS)
    # A time without a unit is stored per iteration, and printed for 100 of them.
    is_total = caveats["unit_unknown"] & (stored["workload"] == "attention")
    facts = stored.assign(
        source=named.str[0],
        table=named.str[1],
        hardware=stored["device_name"].mask(stored["device_name"] == UNNAMED),
        phase=stored["printed"].str.partition(".")[0].replace("", None),
        metric=stored["printed"].str.partition(".")[2],
        value=stored["samples"].str[0].where(~is_total, (stored["samples"].str[0] * 100).round(6)),
        unit=stored["unit"].mask(is_total),
        status=stored["status"].replace("error", "failed"),
        dtype=None,
        **caveats,
    )
    for name in ("hardware", "device", "model", "d_model", "context_length", "batch_size", "precision"):
        facts[name] = facts[name].mask(inferred.map(lambda names, name=name: name in names))
    rest = reference.published().set_index("number")
    everything = pd.concat([rest, facts.set_index("number")[rest.columns].astype(rest.dtypes)])
    return everything.sort_index().reset_index(drop=True)


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
