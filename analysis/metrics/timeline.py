"""The memory timeline: bytes allocated over one iteration, by category, after each allocation and free."""

import pandas as pd

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.allocations import pick
from lmsweep.trials.store.store import Store

CATEGORIES = ("weights", "optimizer_state", "inputs", "workspace", "gradients", "activations", "other")
"""From the longest-lived to the shortest-lived: the order, from below, in which a timeline is stacked."""

PHASES = ("forward", "backward", "optimizer", "end")
"""In order; end covers the frees after the last of the other phases."""


def load_timelines(store: str | Store) -> pd.DataFrame:
    """Return the store's table `timelines`: one row for each phase and category of each result."""
    return Results(store).details("timelines", "memory")


def memory_timeline(timelines: pd.DataFrame, trial: str | None = None) -> pd.DataFrame:
    """Return the allocated bytes over one iteration: columns position, phase, category and bytes.

    trial: as for `pick`. The rows of one position, an allocation or a free, add up to all bytes allocated after it.
    """
    chosen = pick(timelines, trial)
    long = chosen[["phase", "category", "positions", "bytes"]].explode(["positions", "bytes"])
    long = long.rename(columns={"positions": "position"}).astype({"position": "int64", "bytes": "int64"})
    order = [pd.Categorical(long["phase"], PHASES), pd.Categorical(long["category"], CATEGORIES)]
    long = long.assign(phase=order[0], category=order[1]).sort_values(["position", "category"], kind="stable")
    return long[["position", "phase", "category", "bytes"]].reset_index(drop=True)
