"""Tests of one series of samples: whether they drift up or down, and whether they alternate between two levels.

The trend test is that of Mann (1945) and Kendall, which assumes nothing about the shape of the noise. Autocorrelated
samples show trends by chance, so the variance is inflated by (1 + rho) / (1 - rho), the factor of an AR(1) process
(Hamed and Rao, Journal of Hydrology 204, 1998). Rho is estimated from the ranks of the differences of neighbours, which
a trend does not affect.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from lmsweep.trials.statistics.median_interval import Floats, ranks

SIGNIFICANCE = 0.03
"""False-positive rate of the test for independent samples. It is higher for correlated ones."""

LEAST_CHANGE = 0.01
"""Share of the median by which the first and the last quarter must differ. A smaller trend does not matter."""

FEWEST = 10
"""Fewest samples for a test."""


def is_drifting(series: Sequence[float]) -> bool:
    """Return whether the samples of one series have a trend that matters."""
    return bool(have_trend(np.asarray(series, dtype=np.float64)[None, :])[0])


def have_trend(samples: Floats) -> NDArray[np.bool_]:
    """Return, for each row of a (rows, n) matrix, whether its samples have a trend that matters."""
    rows, n = samples.shape
    if n < FEWEST:
        return np.zeros(rows, dtype=bool)
    quarter = n // 4
    change = np.median(samples[:, -quarter:], axis=1) - np.median(samples[:, :quarter], axis=1)
    matters = np.abs(change) >= LEAST_CHANGE * np.abs(np.median(samples, axis=1))
    return matters & (trend_p(samples) < SIGNIFICANCE)


def trend_p(samples: Floats) -> Floats:
    """Return the two-sided p-value of the Mann-Kendall test for each row of a (rows, n) matrix."""
    rows, n = samples.shape
    rises = np.zeros(rows)
    for gap in range(1, n):
        rises += np.sign(samples[:, gap:] - samples[:, :-gap]).sum(axis=1)
    rho = correlation_of_neighbours(samples)
    variance = n * (n - 1) * (2 * n + 5) / 18 * (1 + rho) / (1 - rho)
    # Less 1 for continuity: `rises` is a whole number, the normal distribution is not.
    probability: Floats = 2 * ndtr(-np.maximum(np.abs(rises) - 1, 0) / np.sqrt(variance))
    return probability


def correlation_of_neighbours(samples: Floats) -> Floats:
    """Return the rho, from 0 to 0.9, of an AR(1) process with these differences of neighbours."""
    steps = ranks(np.diff(samples, axis=1))
    centred = steps - steps.mean(axis=1, keepdims=True)
    variance = (centred**2).sum(axis=1)
    covariance = (centred[:, 1:] * centred[:, :-1]).sum(axis=1)
    # Neighbouring differences of an AR(1) process correlate by c = (rho - 1) / 2: -0.5 without autocorrelation. So rho
    # is 1 + 2c.
    of_steps = np.divide(covariance, variance, out=np.full_like(variance, -0.5), where=variance > 0)
    rho: Floats = np.clip(1 + 2 * of_steps, 0, 0.9)  # nearer to 1, no trend would be found
    return rho


# The test for two speeds. A GPU or a host may be slower for some dozens of iterations, without a trend. The samples are
# split where the variance between both sides is largest (Otsu, IEEE Transactions on Systems, Man, and Cybernetics 9,
# 1979). Of normal noise the split explains 2 / pi of the variance, of two levels more; and two levels change sides
# seldom. Medians of BLOCK neighbours are tested as well, which shows levels through more noise.
# tests/timing/test_stopping.py measures how often the tests miss a slow period, and how often they take noise for one:
# the thresholds in `have_levels` were chosen by both.

LEAST_STEP = 0.02
"""Share of the median by which the means of both levels must differ."""

FEWEST_FOR_LEVELS = 4  # samples of each

BLOCK = 5
"""Neighbours whose median is tested as one sample."""
FEWEST_BLOCKS = 8
"""Fewest blocks for a test of their medians: two levels of four."""


def has_levels(series: Sequence[float]) -> bool:
    """Return whether the samples of one series have two levels that matter."""
    return bool(have_levels(np.asarray(series, dtype=np.float64)[None, :])[0])


def have_levels(samples: Floats) -> NDArray[np.bool_]:
    """Return, for each row of a (rows, n) matrix, whether its samples have two levels that matter."""
    rows, n = samples.shape
    found = _have_levels(samples, fewest=max(FEWEST_FOR_LEVELS, n // 20), extra=1.0, changes=0.35)
    blocks = n // BLOCK
    if blocks >= FEWEST_BLOCKS:
        in_blocks = samples[:, n - blocks * BLOCK :]  # without the first that fill no block
        medians = np.median(in_blocks.reshape(rows, blocks, BLOCK), axis=2)
        found |= _have_levels(medians, fewest=2, extra=0.7, changes=0.5)
    return found


def _have_levels(samples: Floats, *, fewest: int, extra: float, changes: float) -> NDArray[np.bool_]:
    """fewest: samples of a level. extra: how far the explained share must exceed that of normal noise, times sqrt(n).
    changes: most changes of level, as a share of those of independent samples."""
    rows, n = samples.shape
    if n < 2 * fewest:
        return np.zeros(rows, dtype=bool)
    ordered = np.sort(samples, axis=1)
    sums, below = ordered.cumsum(axis=1), np.arange(1, n)
    low, high = sums[:, :-1] / below, (sums[:, -1:] - sums[:, :-1]) / (n - below)  # means on both sides of each split
    explained = below * (n - below) * (high - low) ** 2 / n
    split = explained.argmax(axis=1)[:, None]  # where the largest sample of the lower level stands
    step, between = (np.take_along_axis(of, split, axis=1)[:, 0] for of in (high - low, explained))
    total = ((samples - samples.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    upper = samples > np.take_along_axis(ordered, split, axis=1)
    count = upper.sum(axis=1)
    expected_changes = 2 * count * (n - count) / n  # of independent samples
    found: NDArray[np.bool_] = (
        (between > (2 / np.pi + extra / np.sqrt(n)) * total)
        & (np.minimum(count, n - count) >= fewest)
        & ((upper[:, 1:] != upper[:, :-1]).sum(axis=1) < changes * expected_changes)
        & (step > LEAST_STEP * np.abs(np.median(samples, axis=1)))
    )
    return found
