"""The Pareto fronts of each job, for charts: speed against memory and against money."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pandas as pd

from lmsweep.orchestrator.features.best.cells.cell_axes import DEVICE, axes_of, cell_words, job_of, job_words
from lmsweep.orchestrator.features.best.cells.cells import Cell, cells_of
from lmsweep.orchestrator.features.best.cells.front import pareto_front
from lmsweep.orchestrator.features.best.cells.goal import Aim, parse_aim
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.results.metrics import WALL_TIME
from lmsweep.trials.results.outcome import Status

FEWEST_CELLS = 3
"""Minimum number of cells of a job for a chart of its front."""
MOST_TRIALS = 2000
"""A store with more trials has no such charts: the time of a front is quadratic in its cells."""


_COSTS: dict[Literal["memory", "money"], Callable[[Cell, Aim], float | None]] = {
    "memory": lambda cell, aim: None if cell.peak is None else cell.peak / 2**30,
    "money": lambda cell, aim: cell.dollars(aim),
}
"""Quantity -> the cost of a cell by it; None if it is not known."""


class Point(NamedTuple):
    """A cell of a job, on the front or behind it."""

    device: str
    speed: float
    """Tokens per second."""
    cost: float
    """In the quantity of the front."""
    peak: float | None
    """Bytes."""
    dollars: float | None
    """Per million tokens."""
    others: tuple[str, ...]
    """The axes in which it differs from other cells, except the device, in words: `batch_size 8`."""
    is_on_front: bool
    """By speed, memory and money."""


@dataclass(frozen=True, kw_only=True)
class Front:
    """The cells of a job, by speed and by memory or money."""

    job: str
    quantity: Literal["memory", "money"]
    """What `cost` of a point is: GiB of peak memory, or dollars per million tokens."""
    points: Sequence[Point]
    line: Sequence[Point]
    """Those that are on the front of these two."""


def fronts(frame: pd.DataFrame, prices: Sequence[Price] = ()) -> Iterator[Front]:
    """Yield the fronts of each job: speed and memory, then speed and money, if they are known of several cells."""
    steps = frame[frame["workload"].isin(["timing", "memory"]) & (frame["status"] == Status.OK)]
    if not (prices or steps["workload"].eq("memory").any()) or steps["trial_id"].nunique() > MOST_TRIALS:
        return
    aim = parse_aim("tokens/s", [], prices)
    jobs: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells_of(steps):
        if WALL_TIME in cell.values:
            jobs.setdefault(job_of(cell), []).append(cell)
    for cells in jobs.values():
        for quantity, cost in _COSTS.items():
            known = [cell for cell in cells if cost(cell, aim) is not None]
            if len(known) >= FEWEST_CELLS:
                yield _front(known, quantity, aim)


def _front(cells: Sequence[Cell], quantity: Literal["memory", "money"], aim: Aim) -> Front:
    names = [name for name in axes_of(cells) if name != DEVICE]
    on_front = {id(cell) for cell in pareto_front(cells, aim)}
    points = {
        id(cell): Point(
            device=cell.environment.device_name,
            speed=cell.tokens / cell.values[WALL_TIME].median,
            cost=float(_COSTS[quantity](cell, aim) or 0.0),  # `fronts` passes only cells whose cost is known
            peak=cell.peak,
            dollars=cell.dollars(aim),
            others=tuple(cell_words(cell, [name]) for name in names),
            is_on_front=id(cell) in on_front,
        )
        for cell in cells
    }
    line = pareto_front(cells, aim, ("time", quantity))[::-1]  # from the slowest
    job = job_words(cells[0].config)
    return Front(job=job, quantity=quantity, points=[*points.values()], line=[points[id(cell)] for cell in line])
