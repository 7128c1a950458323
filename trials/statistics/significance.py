"""Tests whether two sides of many cells differ, or are the same, by processes (`lmsweep.trials.statistics.variation`).

A side of a cell is some processes that ran the same program, summarised by the centre of the logarithms of their
medians. Two sides are called different if two conditions hold: Student's t test of the processes is significant after
Holm's correction for the number of cells, and the estimate is at least the smallest difference that counts. They are
called the same if two one-sided tests reject every difference above a limit. All else is undecided.
benchmarks/verdicts.py simulates the error rates.

One process on each side does not show how much processes vary. Many such cells together do: by how much their ratios
scatter around a fit of the axes of their table (`scatter`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from lmsweep.trials.statistics.variation import Floats, Repeats, error_of_sides, p_different, p_equivalent, reach

SIGNIFICANCE = 0.05
"""Family-wise error rate: probability that a comparison of equal sides calls any cell different."""

WIDEST = float(np.log(4.0))
"""Half the width of the widest interval, on a logarithmic scale: beyond it, the processes say next to nothing."""


class Thresholds(NamedTuple):
    """What counts as a difference in each cell, as fractions."""

    different: Floats
    """The smallest difference that has a direction."""
    of_device_times: Floats
    """The same of times in which the device was busy."""
    same: Floats
    """Two sides are the same if they differ by less."""


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
    widened: Floats
    """Factor of the prior's scale, because cells scatter more than it says; 1 where it was kept."""


def differences(
    distance: Floats,
    repeats: Repeats,
    scale: Floats,
    prior: Floats,
    same: Floats,
    axes: NDArray[np.int64] | None = None,
    options: NDArray[np.int64] | None = None,
) -> Differences:
    """Return how the second side differs from the first.

    distance: between the logarithms of the sides' centres; scale, prior: scale and freedom of each cell's `Variation`;
    same: of `Thresholds`; axes: of shape (cells, axes), the value of each key in each cell as an integer; without them
    the cells do not widen the prior. options: to which of several comparisons each cell belongs; the cells of one do
    not widen the prior of another.
    """
    error, freedom = error_of_sides(repeats, scale, prior)
    widened = np.ones(len(distance))
    if axes is not None:
        of_option = np.zeros(len(distance), dtype=np.int64) if options is None else options
        for option in np.unique(of_option):
            lone = (of_option == option) & (repeats.number == 1).all(axis=1)  # one process on each side
            if lone.sum() >= FEWEST_CELLS:
                widened[lone] = scatter(distance[lone], error[lone], freedom[lone], axes[lone])
    error, freedom = error_of_sides(repeats, widened * scale, prior)
    half = reach(freedom) * error
    shown = np.where(half < WIDEST, half, np.nan)
    return Differences(
        ratio=np.exp(distance),
        low=np.exp(distance - shown),
        high=np.exp(distance + shown),
        p=p_different(distance, error, freedom),
        p_same=p_equivalent(distance, error, freedom, same),
        half=half,
        widened=widened,
    )


FEWEST_CELLS = 6  # with one process on each side; fewer do not widen the prior
MOST_WIDENED = 4.0  # times the prior's scale


def scatter(distance: Floats, error: Floats, freedom: Floats, axes: NDArray[np.int64]) -> float:
    """Return how many times the prior's scale explains how these cells scatter, from 1 to MOST_WIDENED.

    distance: logarithms of the ratios; error: their standard errors by the prior; freedom: of the prior. What each
    value of an axis does is taken out by least squares. The variance of the residuals is estimated from their median
    absolute value, so that one cell with a true difference counts for little. It is averaged with the prior's, weighted
    by degrees of freedom.
    """
    columns = [np.ones(len(distance)), *(axis == value for axis in axes.T for value in np.unique(axis)[1:])]
    design = np.column_stack(columns).astype(float)
    fit, _, rank, _ = np.linalg.lstsq(design, distance, rcond=None)
    remaining = len(distance) - int(rank)
    known = error > 0
    if remaining < 1 or not known.any():
        return 1.0
    residuals = np.abs(distance - design @ fit)[known] / error[known]
    observed = (float(np.median(residuals)) * OF_MEDIAN) ** 2 * len(distance) / remaining  # in variances of the prior
    of_prior = float(np.median(freedom))
    variance = (of_prior + remaining * observed) / (of_prior + remaining)
    return float(np.clip(np.sqrt(variance), 1.0, MOST_WIDENED))


OF_MEDIAN = 1 / float(ndtri(0.75))
"""Standard deviation of a normal distribution in median absolute deviations."""


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

    p, p_same: adjusted by `holm`; least: of `Thresholds`. Smaller by 2 % means 1 / 1.02, so that exchanging the sides
    exchanges the verdicts.
    """
    found = np.full(len(ratio), np.nan)
    found[p_same < SIGNIFICANCE] = 0
    sure = p < SIGNIFICANCE
    found[sure & (ratio >= 1 + least)] = 1
    found[sure & (ratio <= 1 / (1 + least))] = -1
    return found
