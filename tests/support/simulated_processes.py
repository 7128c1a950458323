"""Processes whose true times are known: how often verdicts on them, and the intervals they rest on, are right.

A cell has a true time; the median that a process measures is that time multiplied by exp(variation x normal noise).
Families of 24 equal cells show false verdicts, a family with one cell 10 % slower shows power.
"""

from typing import Any

import numpy as np

from lmsweep.trials.statistics.mean_ratio import mean_ratio
from lmsweep.trials.statistics.significance import differences, direction, holm
from lmsweep.trials.statistics.variation import (
    BETWEEN_MACHINES,
    PRIORS,
    Floats,
    Kind,
    Variation,
    centre,
    error_of_sides,
    reach,
)

CELLS, FAMILIES = 24, 1000
PROCESSES = (1, 2, 3, 5, 8)
WITHIN = 0.002
"""Standard error of the median of a process from its samples."""


def family(
    random: np.random.Generator, *, kind: Kind, processes: int, variation: Floats, effect: Floats
) -> tuple[Any, Floats]:
    """Return the differences of one family of cells, and its verdicts. variation, effect: of each cell."""
    logs = [
        shift[:, None] + variation[:, None] * random.standard_normal((CELLS, processes))
        for shift in (np.zeros(CELLS), np.log1p(effect))
    ]
    logs = [side + WITHIN * random.standard_normal(side.shape) for side in logs]
    squares = np.stack([((side - side.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) for side in logs], axis=1)
    known: Variation = PRIORS[kind].updated(float(squares.sum()), 2.0 * CELLS * (processes - 1))
    number, within = (np.full((CELLS, 2), one) for one in (float(processes), WITHIN if processes == 1 else 0.0))
    error = error_of_sides(number, squares, within, *(np.full(CELLS, one) for one in (known.scale, known.freedom)))
    least = np.full(CELLS, 0.02)
    found = differences(centre(logs[1]) - centre(logs[0]), *error, least)
    return found, direction(found.ratio, holm(found.p), holm(found.p_same), least)


def error_rates(kind: Kind, variation: float, *, families: int = FAMILIES, mixed: bool = False) -> list[list[float]]:
    """Return for each number of processes: families with a false difference, cells called the same though they differ
    by 2.1 %, power for one cell 10 % slower, and coverage of the interval of a ratio.

    mixed: cells differ in their variation, by a factor of 2 in the standard deviation of its logarithm.
    """
    random, rows = np.random.default_rng(1), []
    for processes in PROCESSES:
        false = same = power = covered = 0.0
        for _ in range(families):
            each = variation * (np.exp(np.log(2) * random.standard_normal(CELLS)) if mixed else np.ones(CELLS))
            found, verdicts = family(random, kind=kind, processes=processes, variation=each, effect=np.zeros(CELLS))
            false += bool((np.abs(verdicts) == 1).any())
            covered += float(((found.low <= 1) & (found.high >= 1)).mean())
            _, verdicts = family(random, kind=kind, processes=processes, variation=each, effect=np.full(CELLS, 0.021))
            same += bool((verdicts == 0).any())
            one = np.zeros(CELLS)
            one[0] = 0.1
            each[0] = variation
            power += family(random, kind=kind, processes=processes, variation=each, effect=one)[1][0] == 1
        rows.append([processes, *(number / families for number in (false, same, power, covered))])
    return rows


AXES = np.stack(np.meshgrid(*map(np.arange, (3, 2, 2, 2)), indexing="ij"), axis=-1).reshape(CELLS, 4)


def mean_coverage(*, axis: float, common: float, families: int = FAMILIES) -> tuple[float, float]:
    """Return how often the intervals of a geometric mean cover that of these cells, and that of all such cells.

    axis: standard deviation of the effect of each value of an axis; common: of an effect on all cells. Both are of
    device time; each cell adds 2 % of its own.
    """
    random, error = np.random.default_rng(2), 0.005
    half = error * float(reach(np.array(8.0)))
    these = others = 0
    for _ in range(families):
        effect = sum(axis * random.standard_normal(4)[AXES[:, place]] for place in range(AXES.shape[1]))
        cells = effect + common * random.standard_normal() + 0.02 * random.standard_normal(CELLS)
        measured = cells + error * random.standard_normal(CELLS)
        mean = mean_ratio(measured, np.full(CELLS, half), AXES, 2**0.5 * BETWEEN_MACHINES["device"])
        these += mean.low <= np.exp(cells.mean()) <= mean.high
        others += mean.others_low <= 1 <= mean.others_high
    return these / families, others / families
