"""The trend test: whether the samples of a series drift up or down.

It is that of Mann (1945) and Kendall, which assumes nothing about the shape of the noise. Autocorrelated samples show
trends by chance, so the variance is inflated by (1 + rho) / (1 - rho), the factor of an AR(1) process (Hamed and Rao,
Journal of Hydrology 204, 1998). Rho is estimated from the ranks of the differences of neighbours, which a trend does
not affect.
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
    """Return the same for each row of a (rows, n) matrix."""
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
    probability: Floats = 2 * ndtr(-np.maximum(np.abs(rises) - 1, 0) / np.sqrt(variance))
    return probability


def correlation_of_neighbours(samples: Floats) -> Floats:
    """Return the rho, from 0 to 0.9, of an AR(1) process with these differences of neighbours."""
    steps = ranks(np.diff(samples, axis=1))
    centred = steps - steps.mean(axis=1, keepdims=True)
    variance = (centred**2).sum(axis=1)
    covariance = (centred[:, 1:] * centred[:, :-1]).sum(axis=1)
    of_steps = np.divide(covariance, variance, out=np.full_like(variance, -0.5), where=variance > 0)
    rho: Floats = np.clip(1 + 2 * of_steps, 0, 0.9)
    return rho
