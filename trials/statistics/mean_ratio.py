"""The geometric mean of the ratios of many cells: of these cells, and of others like them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.statistics.variation import Floats, reach


class MeanRatio(NamedTuple):
    """A geometric mean and the ends of its two 95 % intervals; NaN where there is none."""

    mean: float
    low: float
    high: float
    """Interval of the mean over these cells on these machines."""
    others_low: float
    others_high: float
    """Interval of the mean over other cells and machines of the same kinds: wider, since these differ."""


class _Variance(NamedTuple):
    variance: float
    freedom: float


MACHINES_FREEDOM = 3.0
"""Degrees of freedom of the estimated variation between machines."""

FARTHEST = 700.0
"""Largest logarithm of a ratio: its exponential is near the largest float."""

CAUTION = 0.6
"""Factor on Satterthwaite's degrees of freedom, which are too many for the few values of an axis. With it the interval
covers 90 % or more in benchmarks/verdicts.py."""


def mean_ratio(distances: Floats, halves: Floats, levels: NDArray[np.int64], machines: float) -> MeanRatio:
    """Return the mean of `exp(distances)`.

    distances: logarithms of the ratios, shape (cells,); halves: half of the width of their 95 % intervals, which add in
    quadrature; levels: the value of each axis in each cell, shape (cells, axes), as integers; machines: standard
    deviation of the logarithm that all cells share because of their machines, 0 for one machine.

    Cells that share a value of an axis share what it does, so the cells are no independent sample. The variance of the
    mean over other cells adds up over the axes (Cameron, Gelbach and Miller, Journal of Business & Economic Statistics
    29, 2011), and its degrees of freedom are Satterthwaite's.
    """
    n = len(distances)
    mean = float(np.mean(distances))
    half = float(np.sqrt((halves**2).sum()) / n)
    wide = np.nan
    if n > 2:
        rest = distances - mean
        axes = [axis for axis in levels.T if 1 < len(set(axis)) < n]
        independent, *of_axes = (_clustered(rest, axis) for axis in (np.arange(n), *axes))
        parts = [independent, _Variance(machines**2, MACHINES_FREEDOM)]
        for one in of_axes:  # what an axis adds to cells that are independent
            added = max(one.variance - independent.variance, 0.0)
            parts.append(_Variance(added, CAUTION * one.freedom))
        total = sum(part.variance for part in parts)
        of_total = total**2 / max(sum(part.variance**2 / part.freedom for part in parts), 1e-300)
        wide = max(float(reach(np.array(max(of_total, 1.0))) * np.sqrt(total)), half)
    return MeanRatio(*map(ratio_of, (mean, mean - half, mean + half, mean - wide, mean + wide)))


def ratio_of(distance: float) -> float:
    """Return `exp(distance)`, or the nearest number whose reciprocal is a number, too."""
    return float(np.exp(np.clip(distance, -FARTHEST, FARTHEST)))


def _clustered(rest: Floats, axis: NDArray[np.int64]) -> _Variance:
    """Variance of the mean of residuals whose clusters are independent."""
    sums = np.bincount(np.unique(axis, return_inverse=True)[1], weights=rest)
    clusters = len(sums)
    return _Variance(float((sums**2).sum() / len(rest) ** 2 * clusters / (clusters - 1)), clusters - 1.0)
