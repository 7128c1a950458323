"""Reference results that ship, as SOURCES.md says: measured stores, and what reports and benchmarks published."""

from functools import cache
from importlib.resources import files
from pathlib import Path

import pandas as pd

from lmsweep.trials.results.flag_meanings import CAVEATS

ITERATIONS = 100
"""How many iterations a time without a unit is read to cover: SOURCES.md has the reasons."""


def published() -> pd.DataFrame:
    """One row for each number of the reports, in SI units; columns as in SOURCES.md. Null: not stated.

    A value is null unless status is ok, and for the metric dtype, whose answer is the column dtype. The index is the
    place of a number among all.
    """
    return _published().copy()


@cache  # the course's tables ask for it many times
def _published() -> pd.DataFrame:
    stored = pd.read_parquet(f"{shipped()[PUBLISHED]}/measurements", dtype_backend="numpy_nullable")
    caveats = {name: [name in flags for flags in stored["flags"]] for name in CAVEATS}
    # A time without a unit is stored for one iteration, and printed for all.
    is_total = pd.Series(caveats["unit_unknown"], stored.index) & (stored["workload"] == "attention")
    values = stored["samples"].str[0]
    # `sweep` holds the source and the table; `printed` holds `phase.metric` as the report names them.
    named, printed = stored["sweep"].str.split(" ", n=1), stored["printed"].str.partition(".")
    facts = stored.assign(
        source=named.str[0],
        table=named.str[1],
        hardware=stored["device_name"].mask(stored["device_name"] == "not stated"),
        phase=printed[0].replace("", None),
        metric=printed[2],
        value=values.where(~is_total, (values * ITERATIONS).round(6)),  # the digits that were printed
        unit=stored["unit"].mask(is_total),
        status=stored["status"].replace("error", "failed"),
        dtype=None,
        **caveats,
    )
    inferred = facts["inferred"].str.split(",")  # the columns whose value the source does not state
    for name in ("hardware", "device", "model", "d_model", "context_length", "batch_size", "precision"):
        facts[name] = facts[name].mask(inferred.map(lambda names, name=name: name in names))
    rest = in_no_store().set_index("number")
    everything = pd.concat([rest, facts.set_index("number")[rest.columns].astype(rest.dtypes)])
    return everything.sort_index().reset_index(drop=True)


def in_no_store() -> pd.DataFrame:
    """Return what the reports state that is no result of a store: sums, dtypes, parameter counts, kernels, numbers that
    repeat others or follow from them, and cells without a number. Columns as in `published`, and `number`."""
    with files(__name__).joinpath("published.parquet").open("rb") as file:
        return pd.read_parquet(file)


PUBLISHED = "published"
PUBLISHED_STORES = (PUBLISHED, "public-benchmarks")
"""The stores of numbers that others measured: five reports, and public benchmarks."""


def stores() -> dict[str, str]:
    """Return the measured stores that ship: name -> folder."""
    return {name: folder for name, folder in shipped().items() if name not in PUBLISHED_STORES}


def shipped() -> dict[str, str]:
    """Return `stores`, and those of published numbers."""
    folder = Path(str(files(__name__)))
    return {path.parent.name: str(path.parent) for path in sorted(folder.glob("*/measurements"))}
