"""Charts of the Pareto front of each job: speed against memory and against money, with the front drawn."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from lmsweep.analysis.cells.cell_axes import DEVICE, axes_of, cell_words, job_of, job_words
from lmsweep.analysis.cells.cells import Cell, cells_of
from lmsweep.analysis.cells.front import Quantity, pareto_front
from lmsweep.analysis.cells.goal import Aim, parse_aim
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.tables.number_format import number_text
from lmsweep.orchestrator.features.report.drilled import JsonObject
from lmsweep.orchestrator.features.report.figures.charts import Figure
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.quantities import gib

FEWEST_CELLS = 3
"""Minimum number of cells of a job for a chart of its front."""
MOST_TRIALS = 2000
"""A store with more trials has no such charts."""

_PEAK = "Peak memory (GiB)"
_MONEY = "Cost (dollars per million tokens)"


class _Cost(NamedTuple):
    words: str
    of: Callable[[Cell], float | None]
    """Returns the cost of a cell in the unit of the axis; None if it is unknown."""
    quantity: Quantity


def fronts(results: Results) -> Iterator[Figure]:
    """Yield the fronts of each job: speed and memory, then speed and money, if they are known of several cells."""
    frame = results.measurements
    steps = frame[frame["workload"].isin(["timing", "memory"]) & (frame["status"] == Status.OK)]
    if not (results.prices or steps["workload"].eq("memory").any()) or steps["trial_id"].nunique() > MOST_TRIALS:
        return
    aim = parse_aim("tokens/s", [], results.prices)
    jobs: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells_of(steps):
        if "step.time" in cell.values:
            jobs.setdefault(job_of(cell), []).append(cell)
    axes = (
        _Cost(_PEAK, lambda cell: None if cell.peak is None else cell.peak / 2**30, "memory"),
        _Cost(_MONEY, lambda cell: cell.dollars(aim), "money"),
    )
    for cells in jobs.values():
        for axis in axes:
            known = [cell for cell in cells if axis.of(cell) is not None]
            if len(known) >= FEWEST_CELLS:
                yield _figure(known, axis, aim)


def speed(cell: Cell) -> float:
    return cell.tokens / cell.values["step.time"].median


def _figure(cells: Sequence[Cell], axis: _Cost, aim: Aim) -> Figure:
    names = axes_of(cells)
    on_front = pareto_front(cells, aim)  # by speed, memory and money; `line` has only two of them
    devices = list(dict.fromkeys(cell.environment.device_name for cell in cells))
    traces: list[JsonObject] = []
    for colour, device in enumerate(devices):
        of_device = [cell for cell in cells if cell.environment.device_name == device]
        for words, symbol, size, among in (
            ("on the front", "circle", 10, [cell for cell in of_device if cell in on_front]),
            ("behind it", "circle-open", 8, [cell for cell in of_device if cell not in on_front]),
        ):
            if among:
                traces.append(
                    {
                        "type": "scatter", "mode": "markers", "name": f"{device}, {words}", "colour": colour,
                        "marker": {"size": size, "symbol": symbol},
                        "x": [speed(cell) for cell in among], "y": [axis.of(cell) for cell in among],
                        "lines": [_lines(cell, names, aim) for cell in among],
                    }
                )  # fmt: skip
    line = pareto_front(cells, aim, ("time", axis.quantity))[::-1]
    traces.append(
        {
            "type": "scatter", "mode": "lines", "name": "the front of these two", "colour": len(devices),
            "line": {"shape": "vh", "width": 1.5}, "hoverinfo": "skip",
            "x": [speed(cell) for cell in line], "y": [axis.of(cell) for cell in line],
        }
    )  # fmt: skip
    what = "speed and memory" if axis.words == _PEAK else "speed and money"
    layout: JsonObject = {
        "xaxis": {"title": {"text": "Speed (tokens/s)"}},
        "yaxis": {"title": {"text": axis.words}, "rangemode": "tozero"},
    }
    return Figure(title=f"{what} of {job_words(cells[0].config)}", traces=traces, layout=layout)


def _lines(cell: Cell, names: Sequence[str], aim: Aim) -> list[str]:
    dollars = cell.dollars(aim)
    rest = [cell_words(cell, [name]) for name in names if name != DEVICE]
    numbers = [f"{number_text(speed(cell))} tokens/s"]
    numbers += [f"peak {gib(cell.peak)}"] if cell.peak is not None else []
    numbers += [f"{number_text(dollars)} $/Mtoken"] if dollars is not None else []
    return [*numbers, *rest]
