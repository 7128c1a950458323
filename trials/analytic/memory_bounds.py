"""Bounds on the memory of many trials from the predictions of a few.

Memory is monotonic: it does not fall if the batch, the context, a dimension of the model or the part of the step that
runs grows. So if one trial fits, so do all smaller ones; if one does not, no larger one does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from lmsweep.trials.analytic.memory_prediction import memory_config
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import PLAIN_DIMENSIONS
from lmsweep.trials.spec.words import Mode

GROWING = ("batch_size", "context_length", *PLAIN_DIMENSIONS, "vocab_size")
"""Fields in which memory is monotonic. It is also monotonic in `mode`."""
MOST_COMPARED = 400
"""Most candidates among which the most informative trial is searched."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds in bytes on the peak of a trial whose own was not predicted; None if unknown."""

    low: int | None = None
    high: int | None = None
    source: str = "between those predicted for smaller and for larger trials; so large a plan predicts only some"
    """What they follow from, in words for a user."""


def family(config: TrialConfig) -> TrialConfig:
    """Return a representative of all configurations that differ from this one only in monotonic fields."""
    # The smallest that are valid: d_model 2 for one head, and one sequence for each micro-batch.
    same: dict[str, Any] = dict.fromkeys(GROWING, 1) | {"d_model": 2, "batch_size": config.accumulate}
    if not config.recomputation.grows_with_layers:  # not monotonic: more layers may need less memory
        del same["num_layers"]
    return replace(memory_config(config), **same, mode="forward")


class Need(NamedTuple):
    """What a trial needs of a device, as predicted."""

    peak: int
    """Bytes below which it cannot run."""
    enough: int
    """Bytes with which it surely fits. Between `peak` and these, fragmentation decides."""


def bounds_of(
    configs: list[TrialConfig],
    limits: Sequence[int],
    need: Callable[[int], Need | None],
    most: int,
    *,
    guesses: Sequence[int | None] | None = None,
    first: Sequence[int] = (),
) -> list[Bounds]:
    """Return bounds on the peak of each configuration of a family. need: predicts that of an index; called until it is
    known which fit into each of the `limits` (in bytes), at most `most` times. guesses: rough peaks, which save calls;
    only the largest limit is compared with them. first: indices to ask first, which do not count: they are known."""
    modes, growing = get_args(Mode), attrgetter(*GROWING)
    sizes = np.array([[*(size or 0 for size in growing(one)), modes.index(one.mode)] for one in configs], np.int64)
    undecided = np.ones((len(limits), len(configs)), dtype=bool)
    bounds = [Bounds()] * len(configs)
    guess = _Guess(guesses or [None] * len(configs), max(limits, default=0))
    for number in range(len(first) + most):
        still_open = np.flatnonzero(undecided.any(axis=0))
        index = first[number] if number < len(first) else _most_informative(sizes, still_open, guess)
        if index is None:
            break
        undecided[:, index] = False
        found = need(index)
        if found is None:
            continue
        guess.correct(index, found.peak)
        larger, smaller = (sizes >= sizes[index]).all(axis=1), (sizes <= sizes[index]).all(axis=1)
        for of_limit, limit in zip(undecided, limits, strict=True):
            if found.enough <= limit:
                of_limit &= ~smaller
            elif found.peak > limit:
                of_limit &= ~larger
        for i in np.flatnonzero(larger):
            bounds[i] = replace(bounds[i], low=max(found.peak, bounds[i].low or 0))
        for i in np.flatnonzero(smaller):
            bounds[i] = replace(bounds[i], high=min(found.peak, bounds[i].high or found.peak))
    return bounds


class _Guess:
    """Rough peaks, which each predicted one corrects. A family has one for each trial, or none at all: nan."""

    def __init__(self, peaks: Sequence[int | None], limit: int) -> None:
        self._peaks = np.array([np.nan if one is None else one for one in peaks], dtype=float)
        self._limit = limit
        self._doubt = 2.0
        """Factor by which a guess may be wrong. Like its changes, an assumption: it costs calls, not correctness."""

    def fits(self, index: int) -> bool | None:
        """Return whether it probably fits; None if that is open."""
        peak = self._peaks[index]
        return True if peak * self._doubt <= self._limit else False if peak > self._limit * self._doubt else None

    def correct(self, index: int, peak: int) -> None:
        """Scale all guesses by the error of this one, and trust them more if it was right."""
        guessed = self.fits(index)
        wrong = guessed is not None and guessed != (peak <= self._limit)
        self._doubt = 2 * self._doubt if wrong else max(1.2, self._doubt / 1.5)
        self._peaks *= peak / self._peaks[index]


def _most_informative(sizes: Numbers, still_open: npt.NDArray[np.intp], guess: _Guess) -> int | None:
    """Return the index whose answer, or the worse one if both are likely, decides most others; None if none is left."""
    if not len(still_open):
        return None
    chosen = still_open[:: 1 + len(still_open) // MOST_COMPARED]
    rest = sizes[still_open]
    decided = []
    for i in chosen:
        if_fits, if_not = (rest <= sizes[i]).all(axis=1).sum(), (rest >= sizes[i]).all(axis=1).sum()
        fits = guess.fits(int(i))
        decided.append(min(if_fits, if_not) if fits is None else if_fits if fits else if_not)
    return int(chosen[int(np.argmax(decided))])
