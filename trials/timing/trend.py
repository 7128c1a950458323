"""Whether a series of samples goes up or down: its iterations are then not all of one pace.

The test is that of Mann (1945) and Kendall: how many more pairs of samples rise than fall, which takes any shape of
noise and sees a slow drift, a slow decay and a step. Neighbours that resemble each other make trends by chance; the
variance of the count is therefore widened by (1 + rho) / (1 - rho), that of an AR(1) process, as Hamed and Rao have it
(Journal of Hydrology 204, 1998). Rho comes from the ranks of the differences of neighbours, because a trend is not in
them: as an autocorrelation of the samples it would be taken for noise that explains it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import rankdata

from lmsweep.trials.analytic.median_interval import Floats

SIGNIFICANCE = 0.03
"""Probability that independent samples seem to have a trend; those of correlated ones are seen more often."""

LEAST_CHANGE = 0.01
"""Share of the median by which the first and the last quarter must differ: a smaller trend is of no matter."""

FEWEST = 10
"""Samples below which nothing is said."""


def is_drifting(series: Sequence[float]) -> bool:
    """Whether the samples of one series have a trend that matters."""
    return bool(have_trend(np.asarray(series, dtype=np.float64)[None, :])[0])


def have_trend(samples: Floats) -> NDArray[np.bool_]:
    """The same of many series of one length, a (rows, n) matrix."""
    rows, n = samples.shape
    if n < FEWEST:
        return np.zeros(rows, dtype=bool)
    quarter = n // 4
    change = np.median(samples[:, -quarter:], axis=1) - np.median(samples[:, :quarter], axis=1)
    matters = np.abs(change) >= LEAST_CHANGE * np.abs(np.median(samples, axis=1))
    return matters & (trend_p(samples) < SIGNIFICANCE)


def trend_p(samples: Floats) -> Floats:
    """Two-sided probability of a count of rises as far from even as this one, if nothing changes."""
    rows, n = samples.shape
    rises = np.zeros(rows)
    for gap in range(1, n):
        rises += np.sign(samples[:, gap:] - samples[:, :-gap]).sum(axis=1)
    rho = correlation_of_neighbours(samples)
    variance = n * (n - 1) * (2 * n + 5) / 18 * (1 + rho) / (1 - rho)
    probability: Floats = 2 * ndtr(-np.maximum(np.abs(rises) - 1, 0) / np.sqrt(variance))
    return probability


def correlation_of_neighbours(samples: Floats) -> Floats:
    """Rho of an AR(1) process whose differences are like these, from 0 to 0.9, whatever trend is added to it."""
    steps = rankdata(np.diff(samples, axis=1), axis=1)
    centred = steps - steps.mean(axis=1, keepdims=True)
    variance = (centred**2).sum(axis=1)
    covariance = (centred[:, 1:] * centred[:, :-1]).sum(axis=1)
    of_steps = np.divide(covariance, variance, out=np.full_like(variance, -0.5), where=variance > 0)
    rho: Floats = np.clip(1 + 2 * of_steps, 0, 0.9)
    return rho
