"""An icicle of each profiled step: the step, its phases, the parts of the model, and their kernels.

The width of a piece is its time.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.kernels import STEP_PHASES, classified, short_name
from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.orchestrator.features.report.drilled import JsonObject
from lmsweep.orchestrator.features.report.figures.charts import Figure, each_trial
from lmsweep.orchestrator.features.report.lines import COLOURS
from lmsweep.trials.results.metrics import Unit

LEAST_SHARE = 0.002
"""Kernels of a part that each take a smaller share of the step are drawn as one piece."""

_LEVELS = ("phase", "range", "kernel")
_COLOUR_OF_STEP = COLOURS - 1
"""The last colour; the phases take the first ones."""


class Piece(NamedTuple):
    level: int
    """0 is the whole step, 3 a kernel."""
    name: str
    phase: str
    start: float
    """Seconds from the left end."""
    time: float
    """Seconds per step."""
    calls: float
    """Kernel launches per step."""


def icicles(results: Results) -> Iterator[Figure]:
    """Yield the icicle of each profiled trial. Raises RequestError if the store has no profiles."""
    trials = [(title, classified(rows)) for title, rows in each_trial(results.details("kernels", "profile"))]
    unit = choose_unit("s", [float(found["time"].sum()) for _, found in trials])
    for title, found in trials:
        yield _figure(title, pieces(found), unit)


def pieces(found: pd.DataFrame) -> list[Piece]:
    """Return the rectangles of one step: its phases in order, the longest part first.

    found: rows of `classified`: `phase`, `range` (part of the model), `kernel`, `time` in seconds and `calls` per step.
    """
    whole = float(found["time"].sum())
    made = [Piece(0, "step", "", 0.0, whole, float(found["calls"].sum()))]
    named = found[["phase", "range", "time", "calls"]].assign(kernel=found["kernel"].map(short_name))
    of_part = named.groupby(["phase", "range"])["time"].transform("sum")
    small = named.groupby(["phase", "range", "kernel"])["time"].transform("sum") < LEAST_SHARE * whole
    named = named.assign(kernel=named["kernel"].mask(small, "shorter kernels"), of_part=of_part)
    named["place"] = named["phase"].map(STEP_PHASES.index)
    sums = named.groupby(["place", "phase", "range", "of_part", "kernel"], as_index=False)[["time", "calls"]].sum()
    # From left to right. `range` keeps two parts of equal time apart, so that the pieces of a part are side by side.
    sums = sums.sort_values(["place", "of_part", "range", "time"], ascending=[True, False, True, False])
    sums["start"] = sums["time"].cumsum() - sums["time"]
    start, time, calls = (sums[name].to_numpy(float) for name in ("start", "time", "calls"))
    for level in range(1, len(_LEVELS) + 1):
        names, groups = sums[_LEVELS[level - 1]].to_numpy(), sums.groupby(list(_LEVELS[:level])).indices.values()
        for rows in sorted(groups, key=lambda places: places[0]):  # from left to right
            first, sizes = rows[0], (start[rows].min(), time[rows].sum(), calls[rows].sum())
            made.append(Piece(level, str(names[first]), str(sums["phase"].iloc[first]), *map(float, sizes)))
    return made


def _figure(title: str, made: list[Piece], unit: Unit) -> Figure:
    whole = made[0].time
    traces: list[JsonObject] = []
    colours = {"": _COLOUR_OF_STEP} | {phase: colour for colour, phase in enumerate(STEP_PHASES)}
    for phase, colour in colours.items():
        of_phase = [piece for piece in made if piece.phase == phase]
        if of_phase:
            traces.append(
                {
                    "type": "bar", "orientation": "h", "name": phase or "step", "colour": colour,
                    "showlegend": bool(phase),
                    "y": [-piece.level for piece in of_phase], "x": [piece.time / unit.size for piece in of_phase],
                    "base": [piece.start / unit.size for piece in of_phase], "width": 0.96,  # levels are 1 apart
                    "text": [piece.name for piece in of_phase],
                    "lines": [_lines(piece, whole, unit) for piece in of_phase],
                }
            )  # fmt: skip
    layout: JsonObject = {
        "barmode": "overlay", "height": 330, "icicle": True, "hovermode": "closest",
        "xaxis": {"title": {"text": f"kernel time per step ({unit.name})"}, "range": [0, whole / unit.size]},
        "yaxis": {"tickvals": [0, -1, -2, -3], "ticktext": ["step", "phase", "part", "kernel"], "showgrid": False,
                  "zeroline": False, "fixedrange": True, "range": [-3.5, 0.5]},
    }  # fmt: skip
    return Figure(title=title, traces=traces, layout=layout, top=whole / unit.size)


def _lines(piece: Piece, whole: float, unit: Unit) -> list[str]:
    share = f"{number_text(piece.time / unit.size)} {unit.name}, {100 * piece.time / whole:.1f} % of the step"
    return [piece.name, share, f"{number_text(piece.calls)} launches"]
