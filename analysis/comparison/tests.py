"""Whether two measurements differ: the ratio of their medians with its interval, and a test corrected for their number.

A measurement is a (processes, samples) matrix; the functions take many pairs of one shape at once. A difference is
called where three things hold: the medians differ by at least as much as matters; the test of Mann and Whitney, on
ranks, so that nothing is assumed about the shape of the noise, finds it although so many pairs were looked at (Holm);
and the interval of the ratio leaves out 1. Only the interval knows that neighbouring samples resemble each other, and
that those of one process do: it is what keeps equal things from being called different.
tests/comparison/test_compare.py simulates how often each goes wrong.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from lmsweep.analysis.data.processes import spread_of_medians, student, within_processes
from lmsweep.trials.analytic.median_interval import (
    FEWEST,
    Floats,
    correlation,
    independent_interval,
    intervals,
    widest_likely,
)

SIGNIFICANCE = 0.05
"""Probability that a comparison of equal things calls any of them different, if their samples are independent."""

FURTHEST = 1.5
"""Times the distance to the outermost samples that the interval of a ratio reaches at most. Ten samples cannot tell
neighbours that are nearly the same from a few that happen to be alike: without a limit they find no difference."""

_NORMAL = 1.96
"""Standard deviations on either side of the mean that hold 95 % of a normal distribution."""


def median_of_processes(samples: Floats) -> Floats:
    """The median over processes of each process's median; samples: (pairs, processes, samples)."""
    return np.median(np.median(samples, axis=2), axis=1)


def ratio_of_medians(baseline: Floats, contrast: Floats) -> tuple[Floats, Floats, Floats]:
    """contrast / baseline and its 95 % interval; both (pairs, processes, samples), all positive.

    On the scale of logarithms. Of one process each: `_within`. Where a side has several: Student's, with the spread
    between the processes of both sides together, and nowhere less than what differs within them.
    """
    sides = [np.log(baseline), np.log(contrast)]
    processes = [side.shape[1] for side in sides]
    ratio = median_of_processes(contrast) / median_of_processes(baseline)
    if max(processes) == 1:
        below, above = _within(sides[0][:, 0], sides[1][:, 0])
        return ratio, ratio * np.exp(-below), ratio * np.exp(above)
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
    return ratio, ratio * np.exp(-below), ratio * np.exp(above)


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


def _within(baseline: Floats, contrast: Floats) -> tuple[Floats, Floats]:
    """How far below and above the difference of medians of two (rows, n) matrices its interval reaches.

    Neighbours are taken to be as alike on one side as on the other, so that both tell of it; for every rho there may
    be, the distances of both intervals are added in quadrature (Donner and Zou, Statistical Methods in Medical
    Research 21, 2012). A side reaches no further than FURTHEST times the distance to its outermost samples.
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
    limits = [np.hypot(outermost[0][0], outermost[1][1]), np.hypot(outermost[0][1], outermost[1][0])]
    reach = []
    for (of_one, of_other), limit in zip(ends, limits, strict=True):
        errors = np.hypot(first.error * of_one, second.error * of_other)
        least = np.hypot(of_one, of_other)
        reach.append(np.clip(widest_likely(chances, errors, freedom), least, np.maximum(FURTHEST * limit, least)))
    return reach[0], reach[1]


def _distances(side: Floats) -> tuple[Floats, Floats]:
    """How far below and above the median of processes is uncertain by what differs within them."""
    pairs, processes, n = side.shape
    median, low, high = (end.reshape(pairs, processes) for end in intervals(side.reshape(-1, n)))
    return within_processes(median - low), within_processes(high - median)
