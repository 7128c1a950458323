"""The test for two speeds: whether a series alternates between two levels, in runs.

A GPU or a host may be slower for some dozens of iterations, without a trend. The samples are split where the variance
between both sides is largest (Otsu, IEEE Transactions on Systems, Man, and Cybernetics 9, 1979). Of normal noise the
split explains 2 / pi of the variance, of two levels more; and two levels change sides seldom. Medians of BLOCK
neighbours are tested as well, which shows levels through more noise. benchmarks/slow_regimes.py simulates it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.statistics.median_interval import Floats

LEAST_STEP = 0.02
"""Share of the median by which the means of both levels must differ."""

FEWEST = 4
"""Fewest samples of a level."""

BLOCK = 5
FEWEST_BLOCKS = 8


def has_levels(series: Sequence[float]) -> bool:
    """Return whether the samples of one series have two levels that matter."""
    return bool(have_levels(np.asarray(series, dtype=np.float64)[None, :])[0])


def have_levels(samples: Floats) -> NDArray[np.bool_]:
    """Return the same for each row of a (rows, n) matrix."""
    rows, n = samples.shape
    found = _have_levels(samples, fewest=max(FEWEST, n // 20), extra=1.0, changes=0.35)
    blocks = n // BLOCK
    if blocks >= FEWEST_BLOCKS:
        medians = np.median(samples[:, n - blocks * BLOCK :].reshape(rows, blocks, BLOCK), axis=2)
        found |= _have_levels(medians, fewest=2, extra=0.7, changes=0.5)
    return found


def _have_levels(samples: Floats, *, fewest: int, extra: float, changes: float) -> NDArray[np.bool_]:
    """extra: how far the explained share must exceed that of normal noise, times sqrt(n). changes: most changes of
    level, as a share of those of independent samples."""
    rows, n = samples.shape
    if n < 2 * fewest:
        return np.zeros(rows, dtype=bool)
    ordered = np.sort(samples, axis=1)
    sums, below = ordered.cumsum(axis=1), np.arange(1, n)
    low, high = sums[:, :-1] / below, (sums[:, -1:] - sums[:, :-1]) / (n - below)
    explained = below * (n - below) * (high - low) ** 2 / n
    split = explained.argmax(axis=1)[:, None]
    step, share = (np.take_along_axis(of, split, axis=1)[:, 0] for of in (high - low, explained))
    of_all = ((samples - samples.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    upper = samples > np.take_along_axis(ordered, split, axis=1)
    count = upper.sum(axis=1)
    by_chance = 2 * count * (n - count) / n
    found: NDArray[np.bool_] = (
        (share > (2 / np.pi + extra / np.sqrt(n)) * of_all)
        & (np.minimum(count, n - count) >= fewest)
        & ((upper[:, 1:] != upper[:, :-1]).sum(axis=1) < changes * by_chance)
        & (step > LEAST_STEP * np.abs(np.median(samples, axis=1)))
    )
    return found
