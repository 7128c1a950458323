"""Bounds of the memory of many trials by predicting few of them: what is no larger in any respect needs no more.

Memory does not fall where a batch, a context, a dimension of the model or the part of a step that runs grows. So of
trials that differ in nothing else, one that fits speaks for all smaller ones, one that does not for all larger ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from lmsweep.trials.analytic.memory_prediction import memory_config
from lmsweep.trials.spec.config import Mode, TrialConfig

GROWING = ("batch_size", "context_length", "d_model", "d_ff", "num_layers", "num_heads", "vocab_size")
MOST_COMPARED = 400
"""Trials of which the one is chosen that says most; of more, so many of them."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bytes between which the peak of a trial lies that was not predicted itself; None where nothing says so."""

    low: int | None = None
    high: int | None = None


def family(config: TrialConfig) -> TrialConfig:
    """A configuration that stands for all that one growing thing tells from this one."""
    same: dict[str, Any] = dict.fromkeys(GROWING, 1) | {"d_model": 2}  # the least that one head can have
    if config.checkpointing == "sqrt":  # groups of more layers may need less
        del same["num_layers"]
    return replace(memory_config(config), **same, mode="forward")


def bounds_of(configs: list[TrialConfig], room: int, peak: Callable[[int], int | None], most: int) -> list[Bounds]:
    """For each of a family its bounds. `peak` is asked for that of some, by their index: of `most`, or of fewer where
    these tell of each whether it fits into `room` bytes. It has None where it cannot tell.
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
    """The one whose answer, whichever it is, decides most of the others."""
    if not len(still_open):
        return None
    chosen = still_open[:: 1 + len(still_open) // MOST_COMPARED]
    rest = sizes[still_open]
    decided = [min((rest <= sizes[i]).all(axis=1).sum(), (rest >= sizes[i]).all(axis=1).sum()) for i in chosen]
    return int(chosen[int(np.argmax(decided))])


def _sizes(config: TrialConfig) -> list[int]:
    return [*(getattr(config, name) or 0 for name in GROWING), get_args(Mode).index(config.mode)]
