"""Tests whether two sides of many cells differ, or are the same, by processes (`lmsweep.trials.statistics.variation`).

A side of a cell is some processes that ran the same program, summarised by the centre of the logarithms of their
medians. Two sides are called different if two conditions hold: Student's t test of the processes is significant after
Holm's correction for the number of cells, and the estimate is at least the smallest difference that counts. They are
called the same by a test of its own, which must reject every difference that large (two one-sided tests). All else is
undecided. benchmarks/verdicts.py simulates the error rates.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.statistics.variation import Floats, p_different, p_equivalent, reach

SIGNIFICANCE = 0.05
"""Family-wise error rate: probability that a comparison of equal sides calls any cell different."""

WIDEST = float(np.log(4.0))
"""Half the width of the widest interval, on a logarithmic scale: beyond it, the processes say next to nothing."""


class Differences(NamedTuple):
    """The ratio of the sides of each cell, with the 95 % interval of one cell by itself, and two p-values."""

    ratio: Floats
    low: Floats
    high: Floats
    p: Floats
    """p-value under the hypothesis of no difference."""
    p_same: Floats
    """p-value under the hypothesis of a difference that counts."""
    half: Floats
    """Half the width of the interval on a logarithmic scale, also where it is too wide to be printed."""


def differences(distance: Floats, error: Floats, freedom: Floats, least: Floats) -> Differences:
    """Return how the second side differs from the first. distance: from the logarithm of the first one's centre to that
    of the second; error, freedom: of `error_of_sides`."""
    half = reach(freedom) * error
    shown = np.where(half < WIDEST, half, np.nan)
    return Differences(
        ratio=np.exp(distance),
        low=np.exp(distance - shown),
        high=np.exp(distance + shown),
        p=p_different(distance, error, freedom),
        p_same=p_equivalent(distance, error, freedom, least),
        half=half,
    )


def holm(p: Floats) -> Floats:
    """Return p-values adjusted for their number (Holm, Scandinavian Journal of Statistics 6, 1979). NaN stays NaN."""
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known])]
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted


def direction(ratio: Floats, p: Floats, p_same: Floats, least: Floats) -> NDArray[np.float64]:
    """Return 1 where the second side is larger by at least `least`, -1 where it is smaller by as much, 0 where they are
    the same, and NaN where the processes do not decide.

    p, p_same: adjusted by `holm`. Smaller by 2 % means 1 / 1.02, so that exchanging the sides exchanges the verdicts.
    """
    found = np.full(len(ratio), np.nan)
    found[p_same < SIGNIFICANCE] = 0
    sure = p < SIGNIFICANCE
    found[sure & (ratio >= 1 + least)] = 1
    found[sure & (ratio <= 1 / (1 + least))] = -1
    return found
