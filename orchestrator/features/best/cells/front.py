"""The Pareto front of time, memory and money: the cells that no other beats by more than the errors."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from lmsweep.orchestrator.features.best.cells.cells import Cell, Error
from lmsweep.orchestrator.features.best.cells.goal import Aim
from lmsweep.trials.results.metrics import PEAKS, WALL_TIME
from lmsweep.trials.statistics.median_interval import Floats
from lmsweep.trials.statistics.variation import reach

Quantity = Literal["time", "memory", "money"]

PREDICTED_PEAK_ERROR = Error(0.0025, 0)
"""Error of a predicted peak: the largest error of 54 steps (docs/validation.md)."""


class Coordinate(NamedTuple):
    size: float
    """Seconds per token, bytes or dollars per million tokens; infinite if it is unknown."""
    error: Error


class _Points(NamedTuple):
    """The coordinates of all cells, each field of shape (cells, quantities)."""

    sizes: Floats
    errors: Floats
    freedom: Floats


def pareto_front(
    cells: Sequence[Cell], aim: Aim, quantities: Sequence[Quantity] = ("time", "memory", "money")
) -> list[Cell]:
    """Return the Pareto front, the fastest cell first. A cell is on the front if it is better than each other cell in
    some quantity, by more than the error of their ratio. Of cells that are equal within their errors, only the fastest
    is on the front. Unknown values count as the worst."""
    coordinates = [[_coordinate(cell, aim, one) for one in quantities] for cell in cells]
    shape = len(cells), len(quantities)
    points = _Points(
        np.array([[one.size for one in of_cell] for of_cell in coordinates]).reshape(shape),
        np.array([[one.error.deviation for one in of_cell] for of_cell in coordinates]).reshape(shape),
        np.array([[one.error.freedom or np.inf for one in of_cell] for of_cell in coordinates]).reshape(shape),
    )
    kept: list[int] = np.lexsort(points.sizes.T[::-1]).tolist()  # by the first quantity, then the second, ...
    for cell in reversed([*kept]):  # from the slowest: of equal cells the fastest stays, as no slower one removes it
        rank = kept.index(cell)
        faster, slower = kept[:rank], kept[rank + 1 :]
        if _is_beaten(points, cell, faster, or_equalled=True) or _is_beaten(points, cell, slower, or_equalled=False):
            kept.remove(cell)
    return [cells[number] for number in kept]


def _is_beaten(points: _Points, cell: int, others: Sequence[int], *, or_equalled: bool) -> bool:
    """Whether one of the others is better than the cell in some quantity, or at least equal if `or_equalled`, and worse
    in none."""
    sizes, errors, freedom = points
    theirs = np.array(others, dtype=np.int64)
    within = reach(np.minimum(freedom[cell], freedom[theirs])) * np.hypot(errors[cell], errors[theirs])
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = np.log(sizes[theirs] / sizes[cell])
    excess = np.nan_to_num(excess, nan=0.0, posinf=np.inf, neginf=-np.inf)  # both unknown: equal
    is_worse, is_better = (excess > within).any(axis=1), (excess < -within).any(axis=1)
    return bool((~is_worse & (is_better | or_equalled)).any())


def _coordinate(cell: Cell, aim: Aim, quantity: Quantity) -> Coordinate:
    unknown = Coordinate(np.inf, Error(0.0, 0))
    if quantity == "memory":
        measured = next((cell.values[name] for name in PEAKS if name in cell.values), None)
        error = measured.error if measured else PREDICTED_PEAK_ERROR
        return unknown if cell.peak is None else Coordinate(cell.peak, error)
    time = cell.values.get(WALL_TIME)
    if time is None:
        return unknown
    size = cell.dollars(aim) if quantity == "money" else time.median / cell.tokens
    return unknown if size is None else Coordinate(size, time.error)
