"""A view of the page: a chart and a table of the same cells; here that of an answer."""

from collections.abc import Iterator, Sequence
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

MOST_PERCENT = 3.0
"""A chart shows ratios instead of per cent if a cell is more than this many times as fast."""

STRIP = 130
"""Width of the drawn intervals of a table, in pixels."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of the table of an answer."""

    keys: list[str]
    option: str
    baseline: str
    contrast: str
    amount: str
    interval: str
    verdict: str
    sign: str
    kind: str
    strip: list[float]
    """Positions of the mean and of both ends in pixels; only the mean if the ends are unknown."""
    cell: int


@dataclass(frozen=True, kw_only=True)
class View:
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
    note: str = ""

    def data(self) -> JsonObject:
        return {"name": self.name, "cells": self.cells, "charts": self.charts, "compared": self.compared}

    @property
    def fits(self) -> bool:
        """Whether its charts show all lines, with few in the legend and in few panels."""
        charts: Any = self.charts.values()
        sizes = [
            (len({one["name"] for one in chart["traces"]}), len(chart["panels"]), chart["left"]) for chart in charts
        ]
        return all(names <= MOST_LINES and panels <= FEW_PANELS and not left for names, panels, left in sizes)


def named_grids(rows: pd.DataFrame, name: str, compared: Sequence[str] = ()) -> dict[str, MeasuredGrid]:
    """Return the grids that these rows fill, the largest first, each by the name of its view: its axes, and its
    conditions if a larger one has the same axes."""
    named: dict[str, MeasuredGrid] = {}
    for grid in sorted(grids_of(rows.drop_duplicates([*ResultKey._fields])), key=lambda grid: -len(grid.rows)):
        axes = f"{name} {', '.join(axis for axis in grid.axes if axis not in compared) or 'option'}"
        named[", ".join([axes, *map(" ".join, grid.where.items())]) if axes in named else axes] = grid
    return named


def views_of_answer(found: Answer, numbers: dict[ResultKey, int]) -> Iterator[View]:
    """Yield the view of an answer's cells or, if a chart cannot show these, one for each grid that they fill: the
    largest with the option of the headline first."""
    whole, identity = view_of_answer(found, numbers), list(ResultKey._fields)
    fits = whole.fits or found.question.over
    grids = {} if fits else named_grids(found.cells, f"{whole.name}, by", found.question.fields)
    if len(grids) < 2:
        yield whole
        return
    leading, results = lead_of(found).claim.subject, pd.MultiIndex.from_frame(found.cells[identity])
    for name, grid in sorted(grids.items(), key=lambda one: leading not in set(one[1].rows[OPTION])):
        cells = found.cells[results.isin(pd.MultiIndex.from_frame(grid.rows[identity]))]
        keys = [key for key in found.keys if cells[key].nunique(dropna=False) > 1]
        yield replace(view_of_answer(replace(found, cells=cells, keys=keys), numbers), name=name)


def view_of_answer(found: Answer, numbers: dict[ResultKey, int]) -> View:
    """Return the view of an answer's cells, each with its gain."""
    timed, name = found.timed, found.question.text or found.question.title
    keys = [*found.keys, OPTION] if found.cells[OPTION].nunique() > 1 else found.keys
    colour_order = sorted(found.cells[OPTION].unique(), key=lambda name: -found.claim(name).ahead)
    order = found.cells["gain"] * (-1 if timed else 1)  # within equal keys, the best option comes first
    if found.question.over:  # or the options come in the order of time
        order = found.cells[OPTION].map([one.name for one in found.question.options].index)
    ranks = [natural_ranks(found.cells, name) for name in reversed(found.keys)]
    cells = found.cells.iloc[np.lexsort([order.to_numpy(float), *ranks])]
    gains = cells[["gain", "gain_low", "gain_high"]].to_numpy(float)
    position = _strip_scale(gains)
    lines, numbered, options = [], [], [found.baseline, *found.cells[OPTION].unique()]
    read = dict.fromkeys([*found.keys, OPTION, "baseline", "contrast", "verdict", "value", "one", "other"])
    for number, row in enumerate(cells[[*read]].to_dict("records")):
        gain = Gain(*gains[number])
        amount, interval = ("", "") if np.isnan(gain.mean) else gain.words(timed=timed)
        sign, kind = SIGNS[row["verdict"]]
        sizes = [size_text(one, found.unit) for one in (row["baseline"], row["contrast"])]
        lines.append(
            Line(
                keys=[label(row[key]) for key in found.keys], option=row[OPTION],
                baseline=sizes[0], contrast=sizes[1], amount=amount, interval=interval,
                verdict=row["verdict"], sign=sign, kind=kind, cell=number,
                strip=[position(end) for end in gains[number] if not np.isnan(end) and end > 0],
            )
        )  # fmt: skip
        numbered.append([row["value"], *(numbers.get(key, -1) if key else -1 for key in (row["one"], row["other"]))])
    more = "faster" if timed else "less"
    drawn, title = 100 * (gains - 1) * (1 if timed else -1), f"% {more} than {found.baseline}"
    if timed and (gains[:, 0] > MOST_PERCENT).any():
        drawn, title = gains, f"times as fast as {found.baseline}"
    low, high = np.sort(drawn[:, 1:], axis=1).T
    points = cells.assign(
        y=drawn[:, 0], low=low, high=high, limit=np.nan, cell=range(len(cells)),
        text=[f"{one.amount} {one.interval}" for one in lines],
    )  # fmt: skip
    is_ordered = bool(found.question.over) and OPTION in keys
    if is_ordered:  # options form the x axis, and changes between them get marks
        marks = {name: f"{'▲' if claim.gain > 1 else '▼'} {name}" for name, claim in found.changes.items()}
        names = [one.name for one in found.question.options]
        points[OPTION] = [marks.get(name, name) for name in points[OPTION]]
        colour_order = [marks.get(name, name) for name in names]
    chart = chart_of(
        points, keys, title=title, unit="%", colour=OPTION, order=colour_order, over=OPTION if is_ordered else ""
    )
    if is_ordered and chart:
        chart = {**chart, "x": found.question.over}
    if len(options) > 2:
        measured = ["option", found.baseline, "time" if timed else found.question.measure.name]
    else:
        measured = options
    return View(
        name=name, cells=numbered, charts={f"% {more}": chart} if chart else {}, compared=True,
        columns=[*found.keys, *measured, more, "verdict"], lines=lines, zero=position(1.0),
        caption="With 95 % intervals",
    )  # fmt: skip


def _strip_scale(gains: Any) -> Any:
    """Return the function from a gain to its position on a strip: a logarithmic scale of at least 5 % to each side."""
    known = gains[np.isfinite(gains) & (gains > 0)]
    low, high = min(0.95, *known, 1.0) if len(known) else 0.95, max(1.05, *known, 1.0) if len(known) else 1.05

    def position(value: float) -> float:
        return round(5 + (STRIP - 10) * log(value / low) / log(high / low), 1)

    return position
