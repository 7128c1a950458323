"""A view of the page: a chart and a table of the same cells; here that of an answer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from lmsweep.analysis.comparison.claim import Gain
from lmsweep.analysis.comparison.compare import ResultKey
from lmsweep.analysis.data.columns import label, natural_ranks
from lmsweep.analysis.tables.measured_grids import MeasuredGrid, grids_of
from lmsweep.orchestrator.features.report.answers.headline import lead_of
from lmsweep.orchestrator.features.report.answers.store_answers import size_text
from lmsweep.orchestrator.features.report.answers.verdicts import OPTION, Answer
from lmsweep.orchestrator.features.report.drilled import JsonObject
from lmsweep.orchestrator.features.report.lines import FEW_PANELS, MOST_LINES, chart_of
from lmsweep.trials.results.metrics import is_device_time
from lmsweep.trials.statistics.median_interval import Floats

SIGNS = {
    "faster": ("▲", "better"),
    "slower": ("▼", "worse"),
    "less": ("▼", "better"),
    "more": ("▲", "worse"),
    "same": ("=", "unsure"),
    "host-limited": ("h", "unsure"),
    "ambiguous": ("?", "unsure"),
    "failed": ("✕", "worse"),
    "fixed": ("✓", "better"),
    "no result": ("", "unsure"),
}
"""Verdict -> its sign and its CSS class: colour alone would not reach every reader."""

NO_INTERVAL = "[?]"
"""In place of an interval that is unknown: a bare number would look like a sure one."""

DEVICE_MARK = "on GPU"
"""Beside times of the device in a table whose other rows are judged by wall time."""

MOST_TIMES_IN_PERCENT = 3.0
"""A chart shows ratios instead of per cent if a cell is more than this many times as fast."""

STRIP, MARGIN = 130, 5
"""Width of the drawn intervals of a table, and the room for half a circle at each end, in pixels."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of the table of an answer, as texts."""

    keys: list[str]
    option: str
    baseline: str
    contrast: str
    amount: str
    """The gain in words, such as `10 %`, and its `interval`."""
    interval: str
    verdict: str
    sign: str
    kind: str
    """CSS class of the verdict (see SIGNS)."""
    strip: list[float]
    """Positions of the mean and of both ends in pixels, of those that are known and above 0."""
    cell: int
    """Index in `View.cells`."""


@dataclass(frozen=True, kw_only=True)
class View:
    """A chart and a table. That of an answer (`compared`) has its table as `columns` and `lines`, that of a workload as
    `html` and `csv`."""

    name: str
    cells: list[list[Any]]
    """For each cell: the name of its value, then the numbers of its results, the baseline first."""
    charts: dict[str, JsonObject]
    """Value -> its chart."""
    compared: bool = False
    columns: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    zero: float = 0.0
    """Position on a strip at which the difference is 0."""
    caption: str = ""
    conditions: str = ""
    html: Markup = Markup("")
    csv: str = ""
    command: str = ""
    """The command that prints the same table; empty without one."""
    note: str = ""

    def data(self) -> JsonObject:
        return {"name": self.name, "cells": self.cells, "charts": self.charts, "compared": self.compared}

    @property
    def fits(self) -> bool:
        """Whether its charts show all lines, with few in the legend and in few panels."""
        charts: Any = self.charts.values()
        names = [{trace["name"] for trace in chart["traces"]} for chart in charts]
        has_few_names = all(len(of_chart) <= MOST_LINES for of_chart in names)
        return has_few_names and all(len(chart["panels"]) <= FEW_PANELS and not chart["left"] for chart in charts)


def named_grids(rows: pd.DataFrame, name: str, compared: Sequence[str] = ()) -> dict[str, MeasuredGrid]:
    """Return the grids that these rows fill, the largest first, each by the name of its view: `name`, its axes, and its
    conditions if a larger grid has the same axes. compared: fields that are no axes there."""
    named: dict[str, MeasuredGrid] = {}
    for grid in sorted(grids_of(rows.drop_duplicates([*ResultKey._fields])), key=lambda grid: -len(grid.rows)):
        title = f"{name} {', '.join(axis for axis in grid.axes if axis not in compared) or 'option'}"
        if title in named:
            title = ", ".join([title, *(f"{field} {text}" for field, text in grid.where.items())])
        named[title] = grid
    return named


def views_of_answer(found: Answer, numbers: dict[ResultKey, int]) -> Iterator[View]:
    """Yield the view of an answer's cells or, if a chart cannot show these, one for each grid that they fill: the
    largest with the option of the headline first."""
    whole = view_of_answer(found, numbers)
    is_ordered = bool(found.question.over)  # one chart shows all options in their order
    grids = {} if whole.fits or is_ordered else named_grids(found.cells, f"{whole.name}, by", found.question.fields)
    if len(grids) < 2:
        yield whole
        return
    leading, identity = lead_of(found).claim.subject, list(ResultKey._fields)
    option_results = pd.MultiIndex.from_frame(found.cells[identity])  # a cell has the identity of its option's result
    leading_first = sorted(grids.items(), key=lambda one: leading not in set(one[1].rows[OPTION]))
    for name, grid in leading_first:
        cells = found.cells[option_results.isin(pd.MultiIndex.from_frame(grid.rows[identity]))]
        keys = [key for key in found.keys if cells[key].nunique(dropna=False) > 1]
        yield replace(view_of_answer(replace(found, cells=cells, keys=keys), numbers), name=name)


def view_of_answer(found: Answer, numbers: dict[ResultKey, int]) -> View:
    """Return the view of an answer's cells, each with its gain."""
    cells = _in_order(found)
    position = _strip_scale(_gains(cells))
    lines = _table(found, cells, position)
    # The headings of `Line.baseline` and `Line.contrast`; of several options the table also shows `Line.option`.
    headings = [found.baseline, *found.cells[OPTION].unique()]
    if len(headings) > 2:
        headings = ["option", found.baseline, "time" if found.timed else found.question.measure.name]
    results = [
        [value, *(numbers.get(key, -1) if key else -1 for key in keys)]  # -1: none on the page
        for value, *keys in zip(cells["value"], cells["baseline_key"], cells["option_key"], strict=True)
    ]
    clocks = f"; {DEVICE_MARK}: device time, else wall time" * any(_marked(cells))
    return View(
        name=found.question.text or found.question.title, cells=results,
        charts=_chart(found, cells, [f"{one.amount} {one.interval}" for one in lines]), compared=True,
        columns=[*found.keys, *headings, "faster" if found.timed else "less", "verdict"], lines=lines,
        zero=position(1.0), caption=f"With 95 % intervals{clocks}",
    )  # fmt: skip


def _gains(cells: pd.DataFrame) -> Floats:
    """Return the gain of each cell and the ends of its interval, shape (cells, 3)."""
    gains: Floats = cells[["gain", "gain_low", "gain_high"]].to_numpy(float)
    return gains


def _in_order(found: Answer) -> pd.DataFrame:
    """Return the cells by their keys; with equal keys the best option first, or in order if options are ordered."""
    if found.question.over:
        last = found.cells[OPTION].map([one.name for one in found.question.options].index)
    else:
        last = found.cells["gain"] * (-1 if found.timed else 1)
    ranks = [natural_ranks(found.cells, name) for name in reversed(found.keys)]
    return found.cells.iloc[np.lexsort([last.to_numpy(float), *ranks])]  # by the last of these first


def _marked(cells: pd.DataFrame) -> list[bool]:
    """Return for each cell whether device time decides there; False for all if it decides everywhere."""
    by_device = [is_device_time(value) for value in cells["value"]]
    return by_device if not all(by_device) else [False] * len(by_device)


def _table(found: Answer, cells: pd.DataFrame, position: Callable[[float], float]) -> list[Line]:
    """Return the line of each cell."""
    lines = []
    gains, marked = _gains(cells), _marked(cells)
    names = dict.fromkeys([*found.keys, OPTION, "baseline", "contrast", "verdict"])  # a key may be one of these
    for number, row in enumerate(cells[[*names]].to_dict("records")):
        gain = Gain(*gains[number])
        amount, interval = ("", "") if np.isnan(gain.mean) else gain.words(timed=found.timed)
        interval = NO_INTERVAL if amount and np.isnan(gain.low) else interval
        sign, kind = SIGNS[row["verdict"]]
        mark = f" {DEVICE_MARK}" * marked[number]
        sizes = [size_text(one, found.unit) + mark for one in (row["baseline"], row["contrast"])]
        lines.append(
            Line(
                keys=[label(row[key]) for key in found.keys], option=row[OPTION],
                baseline=sizes[0], contrast=sizes[1], amount=amount, interval=interval,
                verdict=row["verdict"], sign=sign, kind=kind, cell=number,
                strip=[position(end) for end in gain if not np.isnan(end) and end > 0],
            )
        )  # fmt: skip
    return lines


def _chart(found: Answer, cells: pd.DataFrame, texts: list[str]) -> dict[str, JsonObject]:
    """Return the name of what the chart of the cells' gains shows -> the chart; nothing if it would be empty."""
    shows, title, drawn = _drawn(found, _gains(cells))
    low, high = np.sort(drawn[:, 1:], axis=1).T  # `% less` has turned the ends around
    points = cells.assign(y=drawn[:, 0], low=low, high=high, limit=np.nan, cell=range(len(cells)), text=texts)
    several = found.cells[OPTION].nunique() > 1
    is_ordered = several and bool(found.question.over)
    if is_ordered:  # options form the x axis, and changes between them get marks
        marks = {name: f"{'▲' if claim.gain > 1 else '▼'} {name}" for name, claim in found.changes.items()}
        order = [marks.get(one.name, one.name) for one in found.question.options]
        points[OPTION] = [marks.get(name, name) for name in points[OPTION]]
    else:
        order = sorted(found.cells[OPTION].unique(), key=lambda name: -found.claim(name).ahead)
    keys = [*found.keys, OPTION] if several else found.keys
    chart = chart_of(points, keys, title=title, unit="%", colour=OPTION, order=order, over=OPTION if is_ordered else "")
    if not chart:
        return {}
    return {shows: {**chart, "x": found.question.over} if is_ordered else chart}


def _drawn(found: Answer, gains: Floats) -> tuple[str, str, Floats]:
    """Return what a chart of these gains shows, its title, and the numbers: percent, or times where these are large."""
    if found.timed and (gains[:, 0] > MOST_TIMES_IN_PERCENT).any():
        return "times as fast", f"times as fast as {found.baseline}", gains
    shows, sign = ("% faster", 1) if found.timed else ("% less", -1)
    return shows, f"{shows} than {found.baseline}", 100 * sign * (gains - 1)


def _strip_scale(gains: Floats) -> Callable[[float], float]:
    """Return the function from a gain to its position on a strip: a logarithmic scale of at least 5 % to each side."""
    known = gains[np.isfinite(gains) & (gains > 0)]
    low, high = min([0.95, *known]), max([1.05, *known])

    def position(value: float) -> float:
        return round(MARGIN + (STRIP - 2 * MARGIN) * log(value / low) / log(high / low), 1)

    return position
