"""All numbers of the reports, in the order in which these print them, and the pairs of those with a counterpart."""

from functools import cache, lru_cache

import pandas as pd

import lmsweep
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.reference import PUBLISHED, published, shipped
from lmsweep.orchestrator.feature import check_function
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError


@cache
def conditions() -> list[str]:
    """Return the fields of a trial that reports state."""
    return [name for name in published() if name in CONFIG_FIELDS]


@lru_cache(1)  # of the parts of a table
def pairs_of(results: Results) -> pd.DataFrame:
    """Return the pairs of these results with published numbers; the index is the place of the number."""
    nothing = pd.DataFrame(
        columns=["device_name", "device", "device_there", "source"], index=pd.Index([], name="number")
    )
    if results.everything.empty:
        return nothing
    check_function("paired", "the tables beside published numbers")
    try:
        pairs = lmsweep.paired(results.attempts, PUBLISHED, results.everything).frame
    except RequestError:  # none of these results has a counterpart
        return nothing
    place = _stored().set_index(["sweep", "attempt_id", "phase", "metric"])["number"]
    keys = pd.MultiIndex.from_frame(pairs[["source", "attempt_id_there", "stored_there", "metric_there"]])
    pairs = pairs.set_index(pd.Index(place.reindex(keys).to_numpy(), name="number"))
    return pairs[pairs.index.notna()]


def _stored() -> pd.DataFrame:
    return pd.read_parquet(f"{shipped()[PUBLISHED]}/measurements", dtype_backend="numpy_nullable")
