"""What a series of samples tells of its median, and which of them are outliers.

Of independent samples the 95 % interval of the median lies between two of them, chosen by rank from the binomial
distribution, so that nothing is assumed about the shape of the noise; between two ranks it is interpolated
(Hettmansperger and Sheather, Statistics and Probability Letters 4, 1986).

Neighbouring iterations resemble each other (clocks, caches, temperature), which makes n samples worth fewer. How alike
they are, rho of an AR(1) process, is itself known from n samples alone. The interval is therefore widened for every rho
there may be, by how likely the samples make it (`Correlation`): little where many samples are plainly independent, a
lot where few seem to be alike. tests/support/recordings/test_sample_stats.py simulates what the intervals cover,
docs/measuring.md has the table. Of fewer than FEWEST samples the interval is their whole range, which covers less.

The functions of one series come last; the others take many series of one length at once, as a (rows, n) matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtri, stdtr, stdtrit

CONFIDENCE = 0.95

FEWEST = 9
"""Samples from which the interval is less than their range, and from which their correlation is looked at."""

FENCE = 3.0
"""Interquartile ranges beyond the quartiles from which a sample is an outlier (Tukey's "far out")."""

Floats = NDArray[np.float64]

_RHO = np.array([*np.linspace(0, 0.9, 10), 0.97])[:, None]
_BEFOREHAND = np.array([2.5, *[1.0] * 10])[:, None]
"""How likely each rho is held to be before there are samples: independence a fifth, everything else alike."""


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """What series tell of their rho: a row for each of _RHO, a column for each series."""

    likelihood: Floats
    """Of the samples' normal scores, with their mean and their spread integrated out."""
    error: Floats
    """Standard error of a mean, over that of as many independent samples of the same spread."""

    def chances(self, *others: "Correlation") -> Floats:
        """How likely each rho is, if it is the same in these series and in those of others."""
        weights = _BEFOREHAND * self.likelihood
        for other in others:
            weights = weights * other.likelihood
        return weights / weights.sum(axis=0)


def correlation(samples: Floats) -> Correlation:
    """What each row tells of its rho; of ranks, because one outlier would hide the correlation of values."""
    n = samples.shape[1]
    scores = ndtri((_ranks(samples) + 0.625) / (n + 0.25))
    squares = (scores**2).sum(axis=1)
    at_ends = scores[:, 0] ** 2 + scores[:, -1] ** 2
    neighbours = (scores[:, 1:] * scores[:, :-1]).sum(axis=1)
    both_ends = scores[:, 0] + scores[:, -1]
    # Generalised least squares with the inverse of an AR(1) process's correlation, which has three diagonals.
    information = ((1 - _RHO) * n + 2 * _RHO) / (1 + _RHO)
    weighted = ((1 - _RHO) * scores.sum(axis=1) + _RHO * both_ends) / (1 + _RHO)
    residual = (squares * (1 + _RHO**2) - _RHO**2 * at_ends - 2 * _RHO * neighbours) / (1 - _RHO**2)
    residual -= weighted**2 / information
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = -((n - 1) * np.log((1 - _RHO**2) * residual) + np.log(information)) / 2
        likelihood = np.exp(logarithm - logarithm.max(axis=0))
        error = np.sqrt(residual / information / (residual[0] / n))
    constant = squares == 0
    return Correlation(likelihood=np.where(constant, 1.0, likelihood), error=np.where(constant, 1.0, error))


def widest_likely(chances: Floats, errors: Floats, freedom: int) -> Floats:
    """How far to either side 95 % lies of a mixture of Student's distributions, over where it lies for one of scale 1.

    chances: of each of the mixture; errors: the scale of each.
    """
    # Student's distribution is read off a table: it would be most of the time of loading a large store.
    places = np.linspace(0, 40, 4001)
    inside = 2 * stdtr(freedom, places) - 1
    independent = float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
    low, high = errors.min(axis=0) * independent, errors.max(axis=0) * independent
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(12):
            middle = (low + high) / 2
            enough = (chances * np.interp(middle / errors, places, inside)).sum(axis=0) >= CONFIDENCE
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high / independent


def independent_interval(ordered: Floats) -> tuple[Floats, Floats, Floats]:
    """Median, low and high of rows of ordered samples that are independent."""
    n = ordered.shape[1]
    median = (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2
    below = _depth(n)
    rank, part = int(below), below - int(below)
    low, high = ordered[:, rank], ordered[:, n - 1 - rank]
    if part:
        low = low + part * (ordered[:, rank + 1] - low)
        high = high + part * (ordered[:, n - 2 - rank] - high)
    return median, low, high


def intervals(samples: Floats) -> tuple[Floats, Floats, Floats]:
    """Median of each row, and low and high end of its interval, widened as shares where all samples are positive."""
    n = samples.shape[1]
    ordered = np.sort(samples, axis=1)
    median, low, high = independent_interval(ordered)
    if n < FEWEST:
        return median, low, high
    found = correlation(samples)
    factor = np.maximum(widest_likely(found.chances(), found.error, n - 1), 1)
    factor = np.where(ordered[:, 0] == ordered[:, -1], 1.0, factor)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = [median * (end / median) ** factor for end in (low, high)]
    distances = [median + factor * (end - median) for end in (low, high)]
    positive = ordered[:, 0] > 0
    low, high = (np.where(positive, *ends) for ends in zip(shares, distances, strict=True))
    return median, low, high


def count_outliers(samples: Floats) -> NDArray[np.int64]:
    """How many samples of each row lie more than three interquartile ranges outside its quartiles."""
    low, high = np.quantile(samples, (0.25, 0.75), axis=1, keepdims=True)
    beyond = FENCE * (high - low)
    return ((samples < low - beyond) | (samples > high + beyond)).sum(axis=1)


def median_interval(series: Sequence[float]) -> tuple[float, float]:
    """The interval of one series' median."""
    _, low, high = intervals(np.asarray(series, dtype=np.float64)[None, :])
    return float(low[0]), float(high[0])


def relative_half_width(series: Sequence[float]) -> float:
    """Half the width of the interval of one series' median, as a share of the median."""
    low, high = median_interval(series)
    return float((high - low) / 2 / np.median(series))


def independent_worth(series: Sequence[float]) -> float:
    """How many independent samples one series is worth, n (1 - rho) / (1 + rho) at the mean of what rho may be."""
    samples = np.asarray(series, dtype=np.float64)[None, :]
    rho = float((correlation(samples).chances() * _RHO).sum())
    return len(series) * (1 - rho) / (1 + rho)


def _depth(n: int) -> float:
    """How many ordered samples lie outside the interval at either end, to which part of one."""
    missed = 2 * bdtr(np.arange(n // 2), n, 0.5)  # by the interval from rank k + 2 to n - k - 1, counted from 1
    if n < FEWEST or missed[0] > 1 - CONFIDENCE:
        return 0.0
    last = int(np.searchsorted(missed, 1 - CONFIDENCE, side="right")) - 1
    covered, less = 1 - missed[last], 1 - missed[last + 1]
    share, rank = (covered - CONFIDENCE) / (covered - less), last + 1
    return last + float((n - rank) * share / (rank + (n - 2 * rank) * share))


def _ranks(samples: Floats) -> Floats:
    """Ranks from 0 within each row; equal samples share the mean of their ranks."""
    rows, n = samples.shape
    order = np.argsort(samples, axis=1)
    ordered = np.take_along_axis(samples, order, axis=1)
    places = np.arange(n)
    starts = np.ones((rows, n), dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.ones((rows, n), dtype=bool)
    ends[:, :-1] = starts[:, 1:]
    first = np.maximum.accumulate(np.where(starts, places, 0), axis=1)
    last = np.minimum.accumulate(np.where(ends, places, n - 1)[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty((rows, n))
    np.put_along_axis(ranks, order, (first + last) / 2, axis=1)
    return ranks
