"""What the workload `memory` recorded of one trial: its memory over one iteration."""

import numpy as np
import pandas as pd

CATEGORIES = ("weights", "optimizer_state", "inputs", "workspace", "gradients", "activations", "other")
"""From the longest-lived to the shortest-lived: a timeline stacks them in this order, from below."""

PHASES = ("forward", "backward", "optimizer", "end")
"""In the order of an iteration; `end` covers the frees after the other phases."""


def memory_timeline(timelines: pd.DataFrame) -> pd.DataFrame:
    """Return the allocated bytes over one iteration: columns position, phase, category and bytes.

    timelines: the rows of one result in the table of this name, one for each phase and category. The rows of one
    position, an allocation or a free, add up to all bytes allocated after it.
    """
    position, size = (np.concatenate([*timelines[name]]) for name in ("positions", "bytes"))
    long = pd.DataFrame({"position": position, "bytes": size})
    for name, order in (("category", CATEGORIES), ("phase", PHASES)):
        words = np.repeat(timelines[name].to_numpy(), timelines["positions"].map(len))
        long.insert(1, name, pd.Categorical(words, order))  # type: ignore[arg-type]
    return long.sort_values(["position", "category"], kind="stable", ignore_index=True)
