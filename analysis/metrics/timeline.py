"""The timeline of memory: what one iteration holds, and for what, from one allocation to the next."""

import pandas as pd

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.memory import pick
from lmsweep.trials.store.store import Store

CATEGORIES = ("weights", "optimizer_state", "inputs", "workspace", "gradients", "activations", "other")
"""From what lasts to what comes and goes: the order, from below, in which a timeline is stacked."""

PHASES = ("forward", "backward", "optimizer", "end")
"""In order; end is what is let go of after the last of the others."""


def load_timelines(store: str | Store) -> pd.DataFrame:
    """The newest rows of the store's table `timelines`, one for each phase and category of each measurement in each
    environment; `positions` and `bytes` are lists, the other columns those of a trial.

    Raises RequestError where there are none.
    """
    return Results(store).details("timelines", "memory")


def memory_timeline(timelines: pd.DataFrame, trial: str | None = None) -> pd.DataFrame:
    """What one iteration holds, point by point: columns position, phase, category and bytes.

    timelines: of `load_timelines`; trial: the beginning of a measurement_id or of a trial_id, not needed where the
    timelines are of one measurement only. position counts the allocations and frees since the iteration began; the
    rows of one position add up to all that is held after it. Points are left out where there are many, peaks never.
    On CUDA, bytes are as they were asked for, which is less than what the allocator hands out in blocks.

    Raises RequestError where `trial` names no measurement or more than one.
    """
    chosen = pick(timelines, trial)
    long = chosen[["phase", "category", "positions", "bytes"]].explode(["positions", "bytes"])
    long = long.rename(columns={"positions": "position"}).astype({"position": "int64", "bytes": "int64"})
    order = [pd.Categorical(long["phase"], PHASES), pd.Categorical(long["category"], CATEGORIES)]
    long = long.assign(phase=order[0], category=order[1]).sort_values(["position", "category"], kind="stable")
    return long[["position", "phase", "category", "bytes"]].reset_index(drop=True)
