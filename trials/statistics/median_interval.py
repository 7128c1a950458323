"""The 95 % confidence interval of a median of autocorrelated samples, and the test for outliers.

Independent samples. The interval lies between two order statistics, whose ranks follow from the binomial distribution,
so the method assumes nothing about the shape of the noise. Between two ranks it is interpolated (Hettmansperger and
Sheather, Statistics and Probability Letters 4, 1986).

Correlated samples. Neighbouring iterations resemble each other because of clocks, caches and temperature, so the
effective sample size is less than n. They are modelled as an AR(1) process, whose coefficient rho is itself estimated
from only n samples. The ranks are therefore moved outwards for each possible rho, weighted by its likelihood
(`Correlation`): little if many samples are clearly independent, much if a few samples seem to be correlated.

No interval reaches beyond the samples. Where even their range would say too little, there is none: with fewer than
FEWEST_BOUNDED samples, and with an effective sample size below LEAST_EFFECTIVE_SIZE.

The coverage is simulated in tests/statistics/test_sample_stats.py; docs/validation.md has the figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtr, ndtri, stdtr, stdtrit

CONFIDENCE = 0.95
NORMAL = 1.96
"""Half width of a 95 % interval of a normal distribution, in standard deviations."""

FEWEST_BOUNDED = 6
"""Fewest independent samples whose range covers the median in 95 % of cases: 1 - 2 / 2**6."""

FEWEST = 9
"""Fewest samples for an interval narrower than their range, and for a dependable estimate of their correlation."""

LEAST_EFFECTIVE_SIZE = 3.0
"""Smallest effective sample size for an interval: below it, the range of the samples seldom covers the median."""

FENCE = 3.0
"""Distance from the quartiles, in interquartile ranges, beyond which a sample is an outlier (Tukey's "far out")."""

Floats = NDArray[np.float64]

_RHO = np.array([*np.linspace(0, 0.9, 10), 0.97])[:, None]
_PRIOR = np.array([2.5, *[1.0] * 10])[:, None]
"""Unnormalised prior of each rho: 2.5 / 12.5, a fifth, for independence (rho 0), the rest spread evenly."""


class Intervals(NamedTuple):
    """Medians of many series and the ends of their 95 % intervals, each of shape (rows,); NaN where there is none."""

    median: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """What the samples say about rho; both arrays have shape (values of rho, series)."""

    likelihood: Floats
    """Marginal likelihood of the samples' normal scores, with their mean and scale integrated out."""
    error: Floats
    """Standard error of the mean, relative to that of as many independent samples of the same scale."""

    def chances(self, *others: "Correlation") -> Floats:
        """Return the posterior probability of each rho, given that these series and `others` share it."""
        weights = _PRIOR * self.likelihood
        for other in others:
            weights = weights * other.likelihood
        posterior: Floats = weights / weights.sum(axis=0)
        return posterior


def correlation(samples: Floats) -> Correlation:
    """Return what each row of a (rows, n) matrix says about its rho, by normal scores: one outlier does not hide it."""
    n = samples.shape[1]
    scores = _scores(ranks(samples), n)
    squares = (scores**2).sum(axis=1)
    at_ends = scores[:, 0] ** 2 + scores[:, -1] ** 2
    neighbours = (scores[:, 1:] * scores[:, :-1]).sum(axis=1)
    both_ends = scores[:, 0] + scores[:, -1]
    # Generalised least squares of a constant mean, with the inverse R of an AR(1) correlation matrix, which is
    # tridiagonal. information: 1'R1, weighted: 1'Rx; residual: x'Rx - (1'Rx)^2 / 1'R1, in row 0 that of rho 0. The
    # determinant of R is (1 - rho^2)^-(n - 1), the marginal likelihood |R|^(1/2) residual^(-(n-1)/2) (1'R1)^(-1/2).
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


def _scores(ranks: Floats | float, n: int) -> Floats:
    """Return the normal scores of ranks from 0 (Blom 1958: (i - 3/8) / (n + 1/4), with i from 1)."""
    return np.asarray(ndtri((ranks + 0.625) / (n + 0.25)), dtype=np.float64)


def widest_likely(chances: Floats, errors: Floats, freedom: int) -> Floats:
    """Return the 95 % half-width, shape (rows,), of a mixture of Student's t distributions, relative to one of scale 1.

    chances, errors: weights and scales of the components, both of shape (components, rows); freedom: degrees of
    freedom.
    """
    # Interpolate Student's t in a table: evaluating it would take most of the time of loading a large store.
    places = np.linspace(0, 40, 4001)
    probability_within = 2 * stdtr(freedom, places) - 1
    independent = float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
    low, high = errors.min(axis=0) * independent, errors.max(axis=0) * independent
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(12):  # bisection, to 1/4096 of the range
            middle = (low + high) / 2
            enough = (chances * np.interp(middle / errors, places, probability_within)).sum(axis=0) >= CONFIDENCE
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    ratio: Floats = high / independent
    return ratio


def effective_size(chances: Floats, n: int) -> Floats:
    """Return the effective size of series of n samples, n (1 - rho) / (1 + rho), at the mean rho."""
    rho: Floats = (chances * _RHO).sum(axis=0)
    return n * (1 - rho) / (1 + rho)


def independent_interval(ordered: Floats) -> Intervals:
    """Return the intervals of independent samples, given as a (rows, n) matrix with sorted rows."""
    rows, n = ordered.shape
    return _between(ordered, np.full(rows, _depth(n)))


def intervals(samples: Floats) -> Intervals:
    """Return the intervals of a (rows, n) matrix. Equal samples have one of width 0, a single sample has none."""
    n = samples.shape[1]
    ordered = np.sort(samples, axis=1)
    constant = (ordered[:, 0] == ordered[:, -1]) & (n > 1)
    if n < FEWEST_BOUNDED:
        median, low, high = independent_interval(ordered)
        known = constant
    else:
        found = correlation(samples)
        chances = found.chances()
        factor = np.maximum(widest_likely(chances, found.error, n - 1), 1)
        # The distance from the median grows in normal scores, so what the noise looks like does not matter. The score
        # of the low end is negative: times a factor above 1, it lies further out, at a smaller depth.
        score = _scores(_depth(n), n) * factor
        median, low, high = _between(ordered, ndtr(score) * (n + 0.25) - 0.625)  # back to ranks
        known = constant | (effective_size(chances, n) >= LEAST_EFFECTIVE_SIZE)
    return Intervals(median, np.where(known, low, np.nan), np.where(known, high, np.nan))


def count_outliers(samples: Floats) -> NDArray[np.int64]:
    """Return how many samples of each row lie more than FENCE interquartile ranges outside the quartiles."""
    low, high = np.quantile(samples, (0.25, 0.75), axis=1, keepdims=True)
    beyond = FENCE * (high - low)
    outliers: NDArray[np.int64] = ((samples < low - beyond) | (samples > high + beyond)).sum(axis=1)
    return outliers


def median_interval(series: Sequence[float]) -> tuple[float, float]:
    """Return both ends of the interval of one series' median, NaN if there is none."""
    found = intervals(np.asarray(series, dtype=np.float64)[None, :])
    return float(found.low[0]), float(found.high[0])


def relative_half_width(series: Sequence[float]) -> float:
    """Return half the width of the interval of one series' median, divided by the median; NaN if there is none."""
    low, high = median_interval(series)
    return float((high - low) / 2 / np.median(series))


def effective_size_of(series: Sequence[float]) -> float:
    """Return the effective sample size of one series, at the posterior mean of rho."""
    samples = np.asarray(series, dtype=np.float64)[None, :]
    return float(effective_size(correlation(samples).chances(), len(series))[0])


def _between(ordered: Floats, depth: Floats) -> Intervals:
    """The medians, and the order statistics at these depths from each end of the sorted rows: at depth 1.5, both ends
    lie half way from the second sample inwards to the third."""
    n = ordered.shape[1]
    places = np.clip(depth, 0, (n - 1) / 2)
    outer = places.astype(np.int64)
    part, rows, inner = places - outer, np.arange(len(ordered)), np.minimum(outer + 1, n - 1)
    low, high = ordered[rows, outer], ordered[rows, n - 1 - outer]
    low = low + part * (ordered[rows, inner] - low)
    high = high + part * (ordered[rows, n - 1 - inner] - high)
    # Halved first: two of the largest numbers have no sum.
    return Intervals(ordered[:, (n - 1) // 2] / 2 + ordered[:, n // 2] / 2, low, high)


def _depth(n: int) -> float:
    """Return how many order statistics lie outside the interval at each end, with a fraction between two of them."""
    if n < FEWEST:
        return 0.0
    covered = 1 - 2 * bdtr(np.arange(n // 2), n, 0.5)  # [k]: how often the median lies within, k left out at each end
    outside = int(np.flatnonzero(covered >= CONFIDENCE)[-1])  # the most that may lie outside
    # How far to the next order statistic, by Hettmansperger and Sheather; `rank` is that of the lower end, from 1.
    share = (covered[outside] - CONFIDENCE) / (covered[outside] - covered[outside + 1])
    rank = outside + 1
    return outside + float((n - rank) * share / (rank + (n - 2 * rank) * share))


def ranks(samples: Floats) -> Floats:
    """Return the ranks, from 0, within each row; ties share their mean rank. Importing scipy.stats takes a second."""
    rows, n = samples.shape
    order = np.argsort(samples, axis=1)
    ordered = np.take_along_axis(samples, order, axis=1)
    places = np.arange(n)
    # Ties are a run in `ordered`. `first` and `last`: the places of the ends of the run in which each sample lies.
    starts = np.ones((rows, n), dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.ones((rows, n), dtype=bool)
    ends[:, :-1] = starts[:, 1:]
    first = np.maximum.accumulate(np.where(starts, places, 0), axis=1)
    last = np.minimum.accumulate(np.where(ends, places, n - 1)[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty((rows, n))
    np.put_along_axis(ranks, order, (first + last) / 2, axis=1)
    return ranks


class RatioInterval(NamedTuple):
    """Ratios and the ends of their 95 % intervals, arrays of one shape."""

    ratio: Floats
    low: Floats
    high: Floats


def ratio_interval(
    median: Floats, low: Floats, high: Floats, base: Floats, base_low: Floats, base_high: Floats
) -> RatioInterval:
    """Return median / base and its interval, from those of two independent measurements, all positive; ends may be NaN.

    Adds the distances to the ends in quadrature on a logarithmic scale ("method of variance estimates recovery", Donner
    and Zou, Statistical Methods in Medical Research 21, 2012).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = median / base
        below = np.hypot(np.log(median / low), np.log(base_high / base))
        above = np.hypot(np.log(high / median), np.log(base / base_low))
        return RatioInterval(ratio=ratio, low=ratio * np.exp(-below), high=ratio * np.exp(above))
