"""All numbers of the reports, in the order in which these print them, and the pairs of those with a counterpart."""

from functools import cache, lru_cache

import pandas as pd

from lmsweep.analysis.comparison.pairs import paired
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.reference import CAVEATS, PUBLISHED, published, shipped
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError

ITERATIONS = 100
"""How many iterations a time without a unit is read to cover: it is stored for one, and printed for all."""


@cache
def every_number() -> pd.DataFrame:
    """Return a row for each number, with the columns of `published`; the index is its place among all."""
    stored = _stored()
    caveats = {name: [name in words for words in stored["flags"]] for name in CAVEATS}
    without_unit = pd.Series(caveats["unit_unknown"], stored.index) & (stored["workload"] == "attention")
    values = stored["samples"].str[0]
    named, printed = stored["sweep"].str.split(" ", n=1), stored["printed"].str.partition(".")
    facts = stored.assign(
        source=named.str[0],
        table=named.str[1],
        hardware=stored["device_name"].mask(stored["device_name"] == "not stated"),
        phase=printed[0].replace("", None),
        metric=printed[2],
        value=values.where(~without_unit, (values * ITERATIONS).round(6)),
        unit=stored["unit"].mask(without_unit),
        dtype=None,
        **caveats,
    )
    inferred = facts["inferred"].str.split(",")
    for name in ("hardware", "device", "model", "d_model", "context_length", "batch_size", "precision"):
        facts[name] = facts[name].mask(inferred.map(lambda names, name=name: name in names))
    rest = published().set_index("number")
    everything = pd.concat([rest, facts.set_index("number")[rest.columns].astype(rest.dtypes)])
    return everything.assign(status=everything["status"].replace("error", "failed")).sort_index()


@cache
def conditions() -> list[str]:
    """Return the fields of a trial that reports state."""
    return [name for name in every_number() if name in CONFIG_FIELDS]


@lru_cache(1)  # of the parts of a table
def pairs_of(results: Results) -> pd.DataFrame:
    """Return the pairs of these results with published numbers; the index is the place of the number."""
    nothing = pd.DataFrame(
        columns=["device_name", "device", "device_there", "source"], index=pd.Index([], name="number")
    )
    if results.everything.empty:
        return nothing
    try:
        found = paired(results.attempts, PUBLISHED, results.everything).frame
    except RequestError:  # none of these results has a counterpart
        return nothing
    place = _stored().set_index(["sweep", "attempt_id", "phase", "metric"])["number"]
    keys = pd.MultiIndex.from_frame(found[["source", "attempt_id_there", "stored_there", "metric_there"]])
    found = found.set_index(pd.Index(place.reindex(keys).to_numpy(), name="number"))
    return found[found.index.notna()]


def _stored() -> pd.DataFrame:
    return pd.read_parquet(f"{shipped()[PUBLISHED]}/measurements", dtype_backend="numpy_nullable")
