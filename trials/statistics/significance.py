"""Tests whether two measurements differ: interval of the ratio of medians, and a rank test corrected by Holm's method.

A measurement is a (processes, samples) matrix; the functions take many pairs of one shape at once. Two measurements
are called different if three conditions hold. The medians differ by at least the smallest difference that counts, and
by at least the noise of the machine, if it is known. The Mann-Whitney test, which assumes nothing about the
distribution of the noise, is significant after Holm's correction for the number of pairs. The interval of the ratio
excludes 1. Only the interval accounts for correlation between neighbouring samples and within processes, so it is what
keeps false positives rare if several processes were measured; with one process on each side it is the noise.
tests/statistics/test_significance.py simulates the error rates.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from lmsweep.trials.statistics.median_interval import (
    FEWEST,
    Floats,
    correlation,
    effective_size,
    independent_interval,
    intervals,
    widest_likely,
)
from lmsweep.trials.statistics.pooling import REACH, spread_of_medians, student, within_processes
from lmsweep.trials.statistics.ratio import RatioInterval

SIGNIFICANCE = 0.05
"""Family-wise error rate: probability that a comparison of equal, independent samples calls any pair different."""

LEAST_WORTH = 1.0
"""Smallest effective sample size of a side for an interval of the ratio; below it, the samples are next to a drift."""

_NORMAL = 1.96
"""Half width of a 95 % interval of a normal distribution, in standard deviations."""


def ratio_of_medians(baseline: Floats, contrast: Floats) -> RatioInterval:
    """Return contrast / baseline and its 95 % interval; both have shape (pairs, processes, samples) and are positive.

    The interval is computed on a logarithmic scale. With one process on each side it is `_within`. With several it is
    Student's t, with the variance between processes pooled over both sides, and at least as wide as the variation
    within the processes implies. The ends are NaN where it would reach beyond REACH times the ratios of samples.
    """
    sides = [np.log(baseline), np.log(contrast)]
    processes = [side.shape[1] for side in sides]
    ratio = np.median(np.median(contrast, axis=2), axis=1) / np.median(np.median(baseline, axis=2), axis=1)
    if max(processes) == 1:
        return _limited(ratio, *_within(sides[0][:, 0], sides[1][:, 0]), *sides)
    medians = [np.median(side, axis=2) for side in sides]
    freedom = sum(processes) - 2
    squares = sum(((of_side - of_side.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) for of_side in medians)
    between = (
        student(freedom)
        * np.sqrt(squares / freedom)
        * np.hypot(spread_of_medians(processes[0]), spread_of_medians(processes[1]))
    )
    below, above = between, between
    if all(side.shape[2] > 1 for side in sides):
        one, other = (_distances(side) for side in sides)
        below, above = (np.maximum(between, np.hypot(one[1 - end], other[end])) for end in (0, 1))
    return _limited(ratio, below, above, *sides)


def p_values(baseline: Floats, contrast: Floats) -> Floats:
    """Return the two-sided p-values of the Mann-Whitney test; both arguments have shape (pairs, processes, samples).

    If neither side varies, as numbers of bytes do not, p is 0 for different values and 1 for equal ones.
    """
    one, other = (side.reshape(len(side), -1) for side in (baseline, contrast))
    constant = (one == one[:, :1]).all(axis=1) & (other == other[:, :1]).all(axis=1)
    with np.errstate(invalid="ignore"):
        p = mannwhitneyu(one, other, axis=1, method="asymptotic").pvalue
    exact = np.where(one[:, 0] == other[:, 0], 1.0, 0.0)
    return np.where(constant & (min(one.shape[1], other.shape[1]) > 1), exact, p)


def least_p(n: int) -> float:
    """Return the smallest possible p-value with n samples per side: all of one side lie below all of the other."""
    one = np.arange(n, dtype=np.float64)
    return float(mannwhitneyu(one, one + n, method="asymptotic").pvalue)


def holm(p: Floats) -> Floats:
    """Return p-values adjusted for their number (Holm, Scandinavian Journal of Statistics 6, 1979). NaN stays NaN."""
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known])]
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted


def direction(
    ratio: Floats, low: Floats, high: Floats, p: Floats, least: Floats, noise: Floats | float = 0.0
) -> NDArray[np.float64]:
    """Return 1 where the contrast is larger by at least `least` and `noise`, -1 where it is smaller by as much, 0 where
    the whole interval is closer to 1 than `least`, and NaN where the samples do not decide.

    p: adjusted by `holm`; least, noise: shares. Smaller by 2 % means 1 / 1.02, so that exchanging the sides exchanges
    the verdicts.
    """
    found = np.full(len(ratio), np.nan)
    found[(low > 1 / (1 + least)) & (high < 1 + least)] = 0
    sure, counts = p < SIGNIFICANCE, np.maximum(least, noise)
    found[sure & (ratio >= 1 + counts) & (low > 1)] = 1
    found[sure & (ratio <= 1 / (1 + counts)) & (high < 1)] = -1
    return found


def _within(baseline: Floats, contrast: Floats) -> tuple[Floats, Floats]:
    """Distances from the difference of medians of two (rows, n) matrices to the ends of its 95 % interval.

    Both sides are assumed to have the same autocorrelation rho, so both contribute to its estimate. For each possible
    rho the distances of both intervals are added in quadrature (Donner and Zou, as in `ratio_interval`). The ends lie
    within the ratios of one side's samples to the other's: ten samples cannot distinguish high autocorrelation from
    chance, and without a limit their intervals would be too wide to find any difference. Fewer than FEWEST samples
    have Student's t instead, which may reach beyond them.
    """
    sides = (baseline, contrast)
    fewest = min(side.shape[1] for side in sides)
    if fewest == 1:
        unknown = np.full(len(baseline), np.nan)
        return unknown, unknown
    ordered = [np.sort(side, axis=1) for side in sides]
    one, other = (independent_interval(side) for side in ordered)
    ends = [(one[2] - one[0], other[0] - other[1]), (one[0] - one[1], other[2] - other[0])]
    if fewest < FEWEST:
        factor = max(student(max((fewest - 1) // 2, 1)) / _NORMAL, 1.0)
        return np.hypot(*ends[0]) * factor, np.hypot(*ends[1]) * factor
    first, second = (correlation(side) for side in sides)
    chances, freedom = first.chances(second), sum(side.shape[1] for side in sides) - 2
    outermost = [
        (side[:, -1] - middle[0], middle[0] - side[:, 0]) for side, middle in zip(ordered, (one, other), strict=True)
    ]
    limits = [outermost[0][0] + outermost[1][1], outermost[0][1] + outermost[1][0]]
    known = np.minimum(*(effective_size(chances, side.shape[1]) for side in sides)) >= LEAST_WORTH
    reach = []
    for (of_one, of_other), limit in zip(ends, limits, strict=True):
        errors = np.hypot(first.error * of_one, second.error * of_other)
        distance = np.clip(widest_likely(chances, errors, freedom), np.hypot(of_one, of_other), limit)
        reach.append(np.where(known, distance, np.nan))
    return reach[0], reach[1]


def _limited(ratio: Floats, below: Floats, above: Floats, baseline: Floats, contrast: Floats) -> RatioInterval:
    """The interval at these distances, without ends where it would say too little. The sides are logarithms."""
    centre = np.log(ratio)
    most = contrast.max(axis=(1, 2)) - baseline.min(axis=(1, 2))
    least = contrast.min(axis=(1, 2)) - baseline.max(axis=(1, 2))
    known = (centre - below >= least - np.log(REACH)) & (centre + above <= most + np.log(REACH))
    low, high = (np.where(known, np.exp(end), np.nan) for end in (centre - below, centre + above))
    return RatioInterval(ratio=ratio, low=low, high=high)


def _distances(side: Floats) -> tuple[Floats, Floats]:
    """Uncertainty of the median of processes, below and above it, that stems from the variation within them."""
    pairs, processes, n = side.shape
    median, low, high = (end.reshape(pairs, processes) for end in intervals(side.reshape(-1, n)))
    low, high = np.where(np.isnan(low), side.min(axis=2), low), np.where(np.isnan(high), side.max(axis=2), high)
    return within_processes(median - low), within_processes(high - median)
