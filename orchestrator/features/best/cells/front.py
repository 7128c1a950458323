"""The Pareto front of time, memory and money: the cells that no other beats by more than the errors."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from lmsweep.orchestrator.features.best.cells.cells import Cell, Error
from lmsweep.orchestrator.features.best.cells.goal import Aim
from lmsweep.trials.results.metrics import PEAKS, WALL_TIME
from lmsweep.trials.statistics.variation import reach

Quantity = Literal["time", "memory", "money"]

PREDICTED_PEAK_ERROR = Error(0.0025, 0)
"""Error of a predicted peak: the largest error of 54 steps (docs/validation.md)."""


class Coordinate(NamedTuple):
    size: float
    """Seconds per token, bytes or dollars per million tokens; infinite if it is unknown."""
    error: Error


def pareto_front(
    cells: Sequence[Cell], aim: Aim, quantities: Sequence[Quantity] = ("time", "memory", "money")
) -> list[Cell]:
    """Return the Pareto front, the fastest cell first. A cell is on the front if it is better than each other cell in
    some quantity, by more than the error of their ratio. Of cells that are equal within their errors, only the fastest
    is on the front. Unknown values count as the worst."""
    points = [[_coordinate(cell, aim, one) for one in quantities] for cell in cells]
    sizes = np.array([[one.size for one in point] for point in points]).reshape(len(cells), len(quantities))
    errors = np.array([[one.error.deviation for one in point] for point in points]).reshape(sizes.shape)
    freedom = np.array([[one.error.freedom or np.inf for one in point] for point in points]).reshape(sizes.shape)
    kept = np.lexsort(sizes.T[::-1]).tolist()  # by the first quantity, then the second, ...
    for place in reversed([*kept]):  # the slowest is removed first, so of equal cells the fastest stays
        order = kept.index(place)
        others = np.array(kept[:order] + kept[order + 1 :], dtype=np.int64)
        within = reach(np.minimum(freedom[place], freedom[others])) * np.hypot(errors[place], errors[others])
        with np.errstate(invalid="ignore", divide="ignore"):
            ahead = np.nan_to_num(np.log(sizes[others] / sizes[place]), nan=0.0, posinf=np.inf, neginf=-np.inf)
        # Whether this cell is better than each other one in some quantity, and whether it is worse in some.
        is_better, is_worse = (ahead > within).any(axis=1), (ahead < -within).any(axis=1)
        is_slower = np.arange(len(others)) < order  # whether this cell comes after each other one
        if (~is_better & (is_worse | is_slower)).any():
            kept.remove(place)
    return [cells[place] for place in kept]


def _coordinate(cell: Cell, aim: Aim, quantity: Quantity) -> Coordinate:
    exact = Error(0.0, 0)
    if quantity == "memory":
        measured = next((cell.values[name] for name in PEAKS if name in cell.values), None)
        error = measured.error if measured else PREDICTED_PEAK_ERROR
        return Coordinate(np.inf if cell.peak is None else cell.peak, error if cell.peak is not None else exact)
    time = cell.values.get(WALL_TIME)
    size = cell.dollars(aim) if quantity == "money" else time and time.median / cell.tokens
    return Coordinate(np.inf if size is None else size, time.error if time and size is not None else exact)
