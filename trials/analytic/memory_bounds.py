"""Bounds on the memory of many trials from the predictions of a few.

Memory is monotonic: it does not fall if the batch, the context, a dimension of the model or the part of the step that
runs grows. So among trials that differ in nothing else, if one fits, all smaller ones fit; if one does not fit, none of
the larger ones does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from lmsweep.trials.analytic.memory_prediction import memory_config
from lmsweep.trials.spec.config import Mode, TrialConfig
from lmsweep.trials.spec.model_sizes import PLAIN_DIMENSIONS

GROWING = ("batch_size", "context_length", *PLAIN_DIMENSIONS, "vocab_size")
"""Fields in which memory is monotonic; so is it in `mode`."""
MOST_COMPARED = 400
"""Most candidates among which the most informative trial is searched."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds on the peak memory of a trial whose own peak was not predicted."""

    low: int | None = None
    """Lower bound in bytes; None if unknown."""
    high: int | None = None
    """Upper bound in bytes; None if unknown."""


def family(config: TrialConfig) -> TrialConfig:
    """Return a representative of all configurations that differ from this one only in monotonic fields."""
    # The minimum for one head, and for a batch of micro-batches.
    same: dict[str, Any] = dict.fromkeys(GROWING, 1) | {"d_model": 2, "batch_size": config.accumulate}
    if config.checkpointing not in ("none", "block", "selective"):  # not monotonic: more layers may need less memory
        del same["num_layers"]
    return replace(memory_config(config), **same, mode="forward")


def bounds_of(configs: list[TrialConfig], room: int, peak: Callable[[int], int | None], most: int) -> list[Bounds]:
    """Return bounds for each configuration of a family.

    `peak(index)` returns the peak bytes of one configuration, or None if it cannot be predicted. It is called at most
    `most` times, and fewer if it is known earlier which configurations fit into `room` bytes.
    """
    sizes = np.array([_sizes(config) for config in configs], dtype=np.int64)
    undecided = np.ones(len(configs), dtype=bool)
    bounds = [Bounds()] * len(configs)
    for _ in range(most):
        index = _telling(sizes, np.flatnonzero(undecided))
        if index is None:
            break
        undecided[index] = False
        found = peak(index)
        if found is None:
            continue
        larger, smaller = (sizes >= sizes[index]).all(axis=1), (sizes <= sizes[index]).all(axis=1)
        undecided &= ~(smaller if found <= room else larger)
        for i in np.flatnonzero(larger):
            bounds[i] = replace(bounds[i], low=max(found, bounds[i].low or 0))
        for i in np.flatnonzero(smaller):
            high = bounds[i].high
            bounds[i] = replace(bounds[i], high=found if high is None else min(found, high))
    return bounds


def _telling(sizes: Numbers, still_open: npt.NDArray[np.intp]) -> int | None:
    """Return the index whose answer decides most of the others in the worse case, or None if all are decided."""
    if not len(still_open):
        return None
    chosen = still_open[:: 1 + len(still_open) // MOST_COMPARED]
    rest = sizes[still_open]
    decided = [min((rest <= sizes[i]).all(axis=1).sum(), (rest >= sizes[i]).all(axis=1).sum()) for i in chosen]
    return int(chosen[int(np.argmax(decided))])


def _sizes(config: TrialConfig) -> list[int]:
    return [*(getattr(config, name) or 0 for name in GROWING), get_args(Mode).index(config.mode)]
