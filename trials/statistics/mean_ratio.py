"""The geometric mean of the ratios of many cells, and how exactly it is known."""

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from lmsweep.trials.statistics.median_interval import NORMAL
from lmsweep.trials.statistics.variation import MOST_FREEDOM, Floats, reach


class MeanRatio(NamedTuple):
    """A geometric mean, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float
    """Interval of the mean over these cells, and over any such machines if there are several. It narrows with every
    cell that agrees."""
    differ: bool
    """Whether the cells differ from each other by more than their intervals let expect."""


FARTHEST = 700.0
"""Largest logarithm of a ratio: its exponential is near the largest float."""

SURELY = 0.01
"""Cells differ if a test that all are equal has a p-value below this."""


def mean_ratio(distances: Floats, halves: Floats, machines: float) -> MeanRatio:
    """Return the mean of `exp(distances)`.

    distances: logarithms of the ratios, shape (cells,); halves: half of the width of their 95 % intervals, which add in
    quadrature; machines: standard deviation between machines of the logarithm of a ratio, which all cells share; 0 for
    one machine. It was estimated from few machines, so its share of the interval is that of Student's t.
    """
    n, mean = len(distances), float(np.mean(distances))
    of_cells = np.sqrt((halves**2).sum()) / n
    half = float(np.hypot(of_cells, reach(np.array(MOST_FREEDOM)) * machines))
    inexact = halves > 0
    standard = (distances - mean)[inexact] / (halves[inexact] / NORMAL)
    excess = float(np.nan_to_num((standard**2).sum()))  # chi-squared if all cells are equal
    differ = len(standard) > 1 and bool(chdtrc(len(standard) - 1, excess) < SURELY)
    return MeanRatio(ratio_of(mean), low=ratio_of(mean - half), high=ratio_of(mean + half), differ=differ)


def ratio_of(distance: float) -> float:
    """Return `exp(distance)`, or the nearest number whose reciprocal is a number, too."""
    return float(np.exp(np.clip(distance, -FARTHEST, FARTHEST)))
