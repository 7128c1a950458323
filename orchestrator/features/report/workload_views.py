"""The views of what each workload measured: its medians as a chart, and as the table that `lmsweep table` prints."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
from markupsafe import Markup

from lmsweep.analysis.comparison.compare import ResultKey
from lmsweep.analysis.data.selection import first_values, unit_of, values_in
from lmsweep.analysis.tables.number_format import choose_unit
from lmsweep.analysis.tables.pivot import pivot
from lmsweep.analysis.tables.render import render
from lmsweep.orchestrator.features.report.drilled import JsonObject, value_text
from lmsweep.orchestrator.features.report.figures.html_table import written
from lmsweep.orchestrator.features.report.lines import chart_of
from lmsweep.orchestrator.features.report.views import View, named_grids
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError

MOST_ROWS = 3000
"""Maximum number of rows of a table of the page; `lmsweep table` prints longer ones."""

QUESTIONS = {
    "timing": "How long does a training step take?",
    "energy": "How much energy does a step use?",
    "memory": "How much memory does a step need?",
    "profile": "Where does the time of a step go?",
    "attention": "How long does attention take?",
    "loss": "What do the output head and the loss take?",
    "precision": "How far do reduced precisions drift?",
    "ddp": "What does communication cost?",
    "collectives": "How fast is each collective?",
    "ceiling": "How fast is a large matrix product?",
}
"""The question that the view of each workload answers, in the order of the page."""


def views_of_workloads(frame: pd.DataFrame, numbers: dict[ResultKey, int], store: str) -> Iterator[View]:
    """Yield the medians of each workload. store: its name in the command that prints the same table; empty: no command.
    numbers: each result's index in the data of the page. frame: all results, as `lmsweep.load` has them."""
    workloads, values = {*map(str, frame["workload"])}, {*values_in(frame)}
    for workload in [*(one for one in QUESTIONS if one in workloads), *sorted(workloads - {*QUESTIONS})]:
        rows = frame[frame["workload"] == workload]
        condition = {"workload": workload} if len(workloads) > 1 else {}
        name = QUESTIONS.get(workload, f"What did {workload} measure?")
        # If all trials of a workload failed, `first_values` returns a default value. If only others measured anything,
        # and not this value, there is no table to show.
        if values and not values.issuperset(first_values(rows)):
            continue
        with suppress(RequestError):  # `pivot` raises it if two results would share a cell: then there is no view
            whole = _of_workload(frame, name, condition, numbers, store)
            # A table too large for one view becomes one view for each grid of the sweep.
            grids = {} if whole.fits else named_grids(rows, f"{name} By")
            parts = [_of_workload(frame, one, condition | grid.where, numbers, store) for one, grid in grids.items()]
            yield from parts if len(parts) > 1 else [whole]


def _of_workload(
    frame: pd.DataFrame, name: str, condition: dict[str, str], numbers: dict[ResultKey, int], store: str
) -> View:
    """Return the view of the rows under this condition: a table, and a chart of each value."""
    table = pivot(frame, where=condition)
    cells = table.cells.assign(cell=range(len(table.cells)))
    # Each cell's index in `table.cells` (NaN: empty) in the order of the body's <td; the keys of its rows are <th.
    cell_of_td = iter(replace(table, cells=cells).wide("cell").to_numpy().ravel())
    results = [numbers[ResultKey(*key)] for key in cells[[*ResultKey._fields]].itertuples(index=False, name=None)]
    caption, conditions, html = written(table)
    is_shown = len(table) <= MOST_ROWS
    head, tag, body = html.partition("<tbody>") if is_shown else ("", "", "")
    body = re.sub("<td", lambda _: _numbered(next(cell_of_td)), body)
    words = ["lmsweep", "table", store, "--rows", ",".join(table.rows)]
    words += ["--cols", ",".join(table.cols)] if table.cols else []
    words += [word for value in table.units for word in ("--value", value)]
    words += [word for field, text in condition.items() for word in ("--where", f"{field}={text}")]
    return View(
        name=name, cells=[[value, result] for value, result in zip(cells["value"], results, strict=True)],
        charts=_charts(cells, [*table.units], list(dict.fromkeys([*table.rows, *table.cols]))),
        caption=caption, conditions=conditions, html=Markup(head + tag + body), csv=render(table, "csv"),
        command=shlex.join(words) if store else "",
        note="" if is_shown else f"The table has {len(table)} rows; the command below prints it.",
    )  # fmt: skip


def _charts(cells: pd.DataFrame, values: list[str], keys: list[str]) -> dict[str, JsonObject]:
    """Return the chart of each value. The values of a profile are shares of one step: they are lines of one chart."""
    if set(cells["workload"]) == {"profile"} and len(values) > 1:
        chart = _chart(cells, values[0], [*keys, "value"], "share of kernel time")
        return {values[0]: chart} if chart else {}
    charts = {value: _chart(cells[cells["value"] == value], value, keys, value) for value in values}
    return {value: chart for value, chart in charts.items() if chart}


def _chart(cells: pd.DataFrame, value: str, keys: list[str], title: str) -> JsonObject | None:
    """Return a chart in the unit of this value; None if it would have no line. keys: what distinguishes lines."""
    unit = choose_unit(unit_of(cells, value) or "1", cells["median"].to_numpy(float))
    stored = cells[["median", "low", "high"]].to_numpy(float)
    scaled = stored / unit.size
    has_limit = cells["status"].eq(Status.OOM) & cells["device_memory"].notna()
    has_limit &= unit_of(cells, value) == "B"  # a trial that ran out of memory is drawn at the device's memory
    points = cells.assign(
        y=scaled[:, 0], low=scaled[:, 1], high=scaled[:, 2],
        limit=(cells["device_memory"].astype(float) / unit.size).where(has_limit),
        text=[value_text(median, low, high, unit) for median, low, high in stored],
    )  # fmt: skip
    chart = chart_of(points, keys, title=title, unit=unit.name, colour="value")
    if not chart:
        return None
    return {**chart, "undrawn": int((points["y"].isna() & points["limit"].isna()).sum())}


def _numbered(cell: float) -> str:
    """Begin a table cell with its index, by which a click finds its samples. NaN: the cell is empty."""
    return "<td" if np.isnan(cell) else f'<td data-cell="{cell:.0f}"'
