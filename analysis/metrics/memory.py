"""The largest allocations that the workload `memory` found, and how one of its trials is named."""

import pandas as pd

from lmsweep.analysis.data.columns import label
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store

_MEASUREMENT = ["measurement_id", "environment_id"]


def load_allocations(store: str | Store) -> pd.DataFrame:
    """The newest rows of the store's table `allocations` for each measurement in each environment.

    Raises RequestError where there are none.
    """
    return Results(store).details("allocations", "memory")


def largest_allocations(allocations: pd.DataFrame, trial: str | None = None, *, most: int = 20) -> pd.DataFrame:
    """The largest pieces of memory of one trial: columns rank, bytes (of one piece), count, at_peak (how many of them
    were held when most was), category, phase, line, function, operator and reason (why there is no line).

    allocations: of `load_allocations`; trial: as for `lmsweep.analysis.metrics.timeline.memory_timeline`, and the same
    errors.
    """
    columns = ["rank", "bytes", "count", "at_peak", "category", "phase", "line", "function", "operator", "reason"]
    return pick(allocations, trial).sort_values("rank")[columns].head(most).reset_index(drop=True)


def pick(rows: pd.DataFrame, trial: str | None) -> pd.DataFrame:
    """The rows of one measurement in one environment, by the beginning of its measurement_id or of its trial_id.

    Raises RequestError where there is none, or more than one.
    """
    if trial is not None:
        rows = rows[rows["measurement_id"].str.startswith(trial) | rows["trial_id"].str.startswith(trial)]
    if rows.empty:
        raise RequestError(f"no measurement of memory has an id that begins with {trial!r}")
    first = rows.drop_duplicates(_MEASUREMENT)
    if len(first) == 1:
        return rows
    names = varying_keys(first, ["model", "context_length", "measurement_id"], [])
    lines = [", ".join(label(value) for value in row) for row in first[names].itertuples(index=False)]
    raise RequestError(
        f"{len(first)} measurements of memory could be meant; name one by its measurement_id. "
        "There are:\n  " + "\n  ".join([", ".join(names), *lines])
    )
