"""Every number of the published reports and of public benchmarks as printed, from the stores and what is in none."""

from importlib.resources import files

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lmsweep.analysis import reference
from lmsweep.trials.results.flag_meanings import CONDITIONS, INFERENCE

_TYPES = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


def public_benchmarks() -> pd.DataFrame:
    """One row for each number, in seconds; columns as in SOURCES.md. Null: the source does not state it."""
    with files(reference).joinpath("public-benchmarks", "measurements", "measurements.parquet").open("rb") as file:
        rows: pd.DataFrame = pq.read_table(file).to_pandas(types_mapper=_TYPES.get)
    phase = rows["phase"].mask((rows["mode"] == "forward_backward") & (rows["phase"] == "step"), "forward_backward")
    named = zip(rows["sweep"], rows["implementation"], strict=True)
    return rows.assign(
        source=[sweep.removesuffix(f", {implementation}") for sweep, implementation in named],
        hardware=rows["device_name"],
        phase=phase,
        value=rows["samples"].str[0],
        **{name: [name in words for words in rows["flags"]] for name in CONDITIONS if name != INFERENCE},
    )
