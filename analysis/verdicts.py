"""Whether two measurements differ: the ratio of their medians with its interval, and a test corrected for their number.

A measurement is a (processes, samples) matrix; the functions take many pairs of one shape at once. A difference is
called where three things hold: the medians differ by at least as much as matters; the test of Mann and Whitney, on
ranks, so that nothing is assumed about the shape of the noise, finds it although so many pairs were looked at (Holm);
and the interval of the ratio leaves out 1. Only the interval knows that neighbouring samples resemble each other, and
that those of one process do: it is what keeps equal things from being called different. tests/test_compare.py
simulates how often each goes wrong.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit
from scipy.stats import mannwhitneyu

from analysis.ratios import ratio_interval
from trials.interval import Floats, samples_below

SIGNIFICANCE = 0.05
"""Probability that a comparison of equal things calls any of them different, if their samples are independent."""

RESAMPLES = 1000
"""Of the bootstrap, for each pair."""

MEDIANS = 200
"""Of the resampled samples of each process, from which the bootstrap draws: they are what takes its time."""

_NORMAL = 1.96
"""Standard deviations on either side of the mean that hold 95 % of a normal distribution."""


def median_of_processes(samples: Floats) -> Floats:
    """The median over processes of each process's median; samples: (pairs, processes, samples)."""
    return np.median(np.median(samples, axis=2), axis=1)


def ratio_of_medians(baseline: Floats, contrast: Floats) -> tuple[Floats, Floats, Floats]:
    """contrast / baseline and its 95 % interval; both (pairs, processes, samples), all positive.

    Of one process each: from the intervals of both medians (`ratio_interval`), widened, on the scale of logarithms, as
    Student's t is from the normal distribution with half as many degrees of freedom as samples, since those of short
    series are too narrow. Of several: a hierarchical bootstrap, which draws processes, then samples of each, widened by
    sqrt(k / (k - 1)), since it takes the k processes of a side for all there are, and as Student's t with as many
    degrees of freedom as processes less two.
    """
    processes = (baseline.shape[1], contrast.shape[1])
    if max(processes) == 1:
        fewest = min(baseline.shape[2], contrast.shape[2])
        ratio, low, high = ratio_interval(
            *_median_with_interval(contrast[:, 0]), *_median_with_interval(baseline[:, 0])
        )
        return _widened(ratio, low, high, _student((fewest - 1) / 2))
    ratio = median_of_processes(contrast) / median_of_processes(baseline)
    random = np.random.default_rng(0)
    drawn = [_resampled(contrast[pair], random) / _resampled(baseline[pair], random) for pair in range(len(ratio))]
    low, high = np.quantile(drawn, (0.025, 0.975), axis=1)
    fewest = min(count for count in processes if count > 1)
    widening = np.sqrt(fewest / (fewest - 1)) * _student(max(sum(processes) - 2, 1))
    return _widened(ratio, np.minimum(low, ratio), np.maximum(high, ratio), widening)


def p_values(baseline: Floats, contrast: Floats) -> Floats:
    """Two-sided probability of ranks as different as these if nothing differs; both (pairs, processes, samples).

    Where neither side varies at all, as bytes do not, what differs differs: 0.
    """
    one, other = (side.reshape(len(side), -1) for side in (baseline, contrast))
    constant = (one == one[:, :1]).all(axis=1) & (other == other[:, :1]).all(axis=1)
    with np.errstate(invalid="ignore"):
        p = mannwhitneyu(one, other, axis=1, method="asymptotic").pvalue
    exact = np.where(one[:, 0] == other[:, 0], 1.0, 0.0)
    return np.where(constant & (min(one.shape[1], other.shape[1]) > 1), exact, p)


def least_p(n: int) -> float:
    """The smallest probability that n samples a side can have: all of one side below all of the other."""
    one = np.arange(n, dtype=np.float64)
    return float(mannwhitneyu(one, one + n, method="asymptotic").pvalue)


def holm(p: Floats) -> Floats:
    """Probabilities adjusted for their number: Holm, Scandinavian Journal of Statistics 6 (1979). NaN stays NaN."""
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known])]
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted


def direction(ratio: Floats, low: Floats, high: Floats, p: Floats, least: Floats) -> NDArray[np.float64]:
    """1 where contrast is larger by at least `least` (a share), -1 where it is smaller by as much, 0 where the whole
    interval is nearer to 1 than that, and NaN where the samples do not tell. p: adjusted by `holm`.

    Smaller by 2 % is 1 / 1.02, so that exchanging the sides exchanges the verdicts.
    """
    found = np.full(len(ratio), np.nan)
    found[(low > 1 / (1 + least)) & (high < 1 + least)] = 0
    sure = p < SIGNIFICANCE
    found[sure & (ratio >= 1 + least) & (low > 1)] = 1
    found[sure & (ratio <= 1 / (1 + least)) & (high < 1)] = -1
    return found


def _student(freedom: float) -> float:
    """How much wider Student's distribution is than the normal one."""
    return max(float(stdtrit(freedom, 0.975)) / _NORMAL, 1.0) if freedom > 0 else np.inf


def _widened(ratio: Floats, low: Floats, high: Floats, factor: float) -> tuple[Floats, Floats, Floats]:
    if not np.isfinite(factor):
        unknown = np.full(len(ratio), np.nan)
        return ratio, unknown, unknown
    return ratio, ratio * (low / ratio) ** factor, ratio * (high / ratio) ** factor


def _median_with_interval(samples: Floats) -> tuple[Floats, Floats, Floats]:
    rows, n = samples.shape
    if n == 1:
        unknown = np.full(rows, np.nan)
        return samples[:, 0], unknown, unknown
    order = np.argsort(samples, axis=1)
    ordered = np.take_along_axis(samples, order, axis=1)
    below, each = samples_below(samples, order), np.arange(rows)
    return np.median(samples, axis=1), ordered[each, below], ordered[each, n - 1 - below]


def _resampled(samples: Floats, random: np.random.Generator) -> Floats:
    """RESAMPLES times the median of processes of one (processes, samples) matrix."""
    processes, n = samples.shape
    each = np.arange(processes)[:, None, None]
    medians = np.median(samples[each, random.integers(n, size=(processes, MEDIANS, n))], axis=2)
    chosen = random.integers(processes, size=(RESAMPLES, processes))
    return np.median(medians[chosen, random.integers(MEDIANS, size=chosen.shape)], axis=1)
