"""What the workload `memory` recorded of one trial: its memory over one iteration."""

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import label
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.trials.spec.config import RequestError


def pick(rows: pd.DataFrame, trial: str | None) -> pd.DataFrame:
    """Return the rows of one measurement in one environment, by the beginning of its measurement_id or trial_id.

    Raises RequestError if there is none or more than one.
    """
    if trial is not None:
        rows = rows[rows["measurement_id"].str.startswith(trial) | rows["trial_id"].str.startswith(trial)]
    if rows.empty:
        raise RequestError(f"no memory measurement has an identifier that begins with {trial!r}")
    if len(rows[RESULT].drop_duplicates()) == 1:
        return rows
    first = rows.drop_duplicates(RESULT)
    names = varying_keys(first, ["model", "context_length", "measurement_id"], [])
    lines = [", ".join(label(value) for value in row) for row in first[names].itertuples(index=False)]
    raise RequestError(
        f"{len(first)} memory measurements match; choose one by its measurement_id:\n  "
        + "\n  ".join([", ".join(names), *lines])
    )


CATEGORIES = ("weights", "optimizer_state", "inputs", "workspace", "gradients", "activations", "other")
"""From the longest-lived to the shortest-lived: a timeline stacks them in this order, from below."""

PHASES = ("forward", "backward", "optimizer", "end")
"""In the order of an iteration; `end` covers the frees after the other phases."""


def memory_timeline(timelines: pd.DataFrame, trial: str | None = None) -> pd.DataFrame:
    """Return the allocated bytes over one iteration: columns position, phase, category and bytes.

    timelines: rows of the table of this name, one for each phase and category of each result.
    trial: as for `pick`. The rows of one position, an allocation or a free, add up to all bytes allocated after it.
    """
    chosen = pick(timelines, trial)
    position, size = (np.concatenate([*chosen[name]]) for name in ("positions", "bytes"))
    long = pd.DataFrame({"position": position, "bytes": size})
    for name, order in (("category", CATEGORIES), ("phase", PHASES)):
        long.insert(1, name, pd.Categorical(np.repeat(chosen[name].to_numpy(), chosen["positions"].map(len)), order))  # type: ignore[arg-type]
    return long.sort_values(["position", "category"], kind="stable", ignore_index=True)
