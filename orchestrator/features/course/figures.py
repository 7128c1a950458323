"""Figures of tables, drawn by Matplotlib: bars by row, lines over a number, memory over one iteration.

Matplotlib is imported only when something is drawn.
"""

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import label
from lmsweep.analysis.metrics.allocations import CATEGORIES, PHASES, memory_timeline
from lmsweep.analysis.tables.number_format import choose_unit
from lmsweep.analysis.tables.pivot import Table
from lmsweep.trials.results.metrics import Unit
from lmsweep.trials.results.outcome import Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#1f6f8b", "#e07a2f", "#6a9a3a", "#a64b75", "#8a6fb3", "#b59a1e", "#4f4f4f")
"""Colours of the series, in their order."""

_MARKERS = "osD^vP*X"

_GROUP = 0.8
"""Width of a group of bars; groups are 1 apart."""
_LONG_NAME = 8
"""Letters. Longer names of groups would overlap, so they are slanted."""


class _Series(NamedTuple):
    """A column of a table: a value for each of the table's rows, in the unit that is drawn; NaN where there is none."""

    name: str
    median: np.ndarray
    below: np.ndarray
    """Distance of the interval's low end from the median."""
    above: np.ndarray
    status: list[str]
    """Of each row, why it has no value; empty if it has one."""


def bars(table: Table, *, stacked: bool = False) -> "Figure":
    """Return a group of bars for each row, with a bar and its 95 % interval for each column; failed trials as words.

    All values of the table have one unit. stacked: the columns are parts of a whole, and the bars of a group are
    stacked, without intervals.
    """
    series, unit = _series(table)
    groups = _names(table.wide("median").index.to_frame(index=False), otherwise=table.rows[0])
    bars_of_group = 1 if stacked else len(series)
    figure, (axes,) = _axes(1, width=max(5.0, 0.5 + 0.28 * len(groups) * bars_of_group))  # 0.28 inches a bar
    base, slot = np.zeros(len(groups)), _GROUP / bars_of_group
    for number, column in enumerate(series):
        from_centre = 0.0 if stacked else (number + 0.5) * slot - _GROUP / 2  # of the group to that of this bar
        places = np.arange(len(groups)) + from_centre
        spread = None if stacked else np.nan_to_num([column.below, column.above])
        heights = np.nan_to_num(column.median)
        color = COLORS[number % len(COLORS)]
        axes.bar(places, heights, slot, base if stacked else 0, yerr=spread, label=column.name, color=color, capsize=2)
        for place, status in zip(places, column.status, strict=True):
            if status and (number == 0 or not stacked):
                axes.text(place, 0, f" {status}", rotation=90, ha="center", va="bottom", fontsize=7, color="#666666")
        base = base + heights
    if max(map(len, groups)) > _LONG_NAME:
        axes.set_xticks(range(len(groups)), groups, rotation=35, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(_quantity(table, unit))
    _legend([axes], beside=stacked)
    return figure


def lines(table: Table, *, over: str, panels: str | None = None) -> "Figure":
    """Return a line for each column and each other row key, over a numeric row key, on logarithmic axes.

    panels: the row key whose values have axes of their own. A failed trial ends a line, with its status.
    """
    keys = table.wide("median").index.to_frame(index=False)
    panel_of = pd.Series("", keys.index) if panels is None else keys[panels]
    values = panel_of.unique()
    figure, all_axes = _axes(len(values), width=4.2 * min(2, len(values)) if len(values) > 1 else 6.0)
    series, unit = _series(table)
    line_keys = [name for name in table.rows if name not in (over, panels)]
    line_names = _names(keys[line_keys], otherwise=line_keys[-1]) if line_keys else [""] * len(keys)
    line_of = pd.Series(line_names, keys.index)
    ticks = sorted({float(number) for number in keys[over]})
    for axes, value in zip(all_axes, values, strict=True):
        # A line has the same number, and so the same colour, in every panel.
        for number, (line_name, column) in enumerate(product(line_of.unique(), series)):
            rows = keys.index[(panel_of == value) & (line_of == line_name)]
            _line(axes, keys.loc[rows, over].to_numpy(float), column, rows.to_numpy(), line_name, number)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ticks, [_short(number) for number in ticks], fontsize=8)
        axes.set_xlabel(over)
        axes.set_ylabel(_quantity(table, unit))
        axes.set_title("" if panels is None else f"{panels} {label(value)}", fontsize=9)
        axes.grid(True, alpha=0.3)
    _legend(all_axes)
    return figure


def timeline(rows: pd.DataFrame) -> "Figure":
    """Return the memory of one iteration by category. rows: those of one trial in the table `timelines`."""
    long = memory_timeline(rows)
    wide = long.pivot_table(index="position", columns="category", values="bytes", aggfunc="last", observed=False)
    wide = wide.reindex(columns=list(CATEGORIES)).ffill().fillna(0)
    wide = wide.loc[:, wide.max() > 0]
    unit = choose_unit("B", [float(wide.sum(axis=1).max())])
    figure, (axes,) = _axes(1, width=7.0)
    axes.stackplot(
        wide.index,
        [wide[name] / unit.size for name in wide],
        labels=[str(name) for name in wide],
        colors=[COLORS[CATEGORIES.index(str(name))] for name in wide],
        step="post",
        linewidth=0,
    )
    starts = long.groupby("phase", observed=True)["position"].min()
    top = axes.get_ylim()[1]
    ends = [*starts.iloc[1:], wide.index.max()]
    for phase, start, end in zip(starts.index, starts, ends, strict=True):
        narrow = end - start < 0.1 * wide.index.max()  # too narrow for its name, which then stands left of its start
        if phase == PHASES[-1] and narrow:
            continue  # `end` has only a few frees: it needs no name
        axes.axvline(start, color="#333333", linewidth=0.6)
        axes.text(start, top, f" {phase} ", va="top", ha="right" if narrow else "left", fontsize=8)
    axes.set_xlim(wide.index.min(), wide.index.max())
    axes.set_xlabel("allocations and frees")
    axes.set_ylabel(f"memory ({unit.name})")
    _legend([axes], beside=True)
    return figure


_QUANTITIES = {"s": "time", "B": "memory", "B/s": "bandwidth"}


def _quantity(table: Table, unit: Unit) -> str:
    words = next((_QUANTITIES[name] for name in table.units.values() if name in _QUANTITIES), "")
    return f"{words} ({unit.name})" if words else unit.name


def _short(number: float) -> str:
    """A number at a tick: `1k` for a thousand, but 1024 and 16384 as they are, and `1Mi` for 2²⁰."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size and number % size == 0:
            return f"{number / size:g}{letter}"
    return f"{number:g}" if number < 1e6 else f"{number / 2**20:g}Mi"


def _axes(count: int, *, width: float) -> "tuple[Figure, list[Axes]]":
    """Return a figure with this number of axes, two in a row. width: of the figure, in inches."""
    from matplotlib.figure import Figure

    rows = -(-count // 2)
    figure = Figure(figsize=(min(width, 14.0), 3.4 if rows == 1 else 3.0 * rows), layout="constrained")
    grid = figure.subplots(rows, min(count, 2), squeeze=False)
    for unused in grid.ravel()[count:]:
        unused.set_axis_off()
    for axes in grid.ravel():
        axes.spines[["top", "right"]].set_visible(False)
    return figure, list(grid.ravel()[:count])


def _legend(all_axes: "list[Axes]", *, beside: bool = False) -> None:
    """Name what is drawn in any of the axes, in the first or beside it."""
    handles = {name: one for axes in all_axes for one, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    if beside or len(handles) > 1:
        place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if beside else {}
        all_axes[0].legend([*handles.values()], [*handles], fontsize=8, frameon=False, **place)


def _line(axes: "Axes", x: np.ndarray, one: _Series, rows: np.ndarray, words: str, number: int) -> None:
    """Draw these rows of a series over x. At the line's end stands the status of the first row without a value."""
    known = ~np.isnan(one.median[rows])
    if not known.any():
        return
    spread = np.nan_to_num([one.below[rows][known], one.above[rows][known]])
    color, marker = COLORS[number % len(COLORS)], _MARKERS[number % len(_MARKERS)]
    name = ", ".join(filter(None, [words, one.name]))
    axes.errorbar(
        x[known], one.median[rows][known], yerr=spread, label=name, color=color, marker=marker, markersize=4, capsize=2
    )
    ends = [one.status[row] for row in rows[~known] if one.status[row]]
    if ends:
        axes.annotate(f" {ends[0]}", (x[known][-1], one.median[rows][known][-1]), fontsize=7, color=color)


def _series(table: Table) -> tuple[list[_Series], Unit]:
    """Return the columns whose unit is the table's first, and the unit in which they are drawn.

    Columns without a unit are included: all of their trials failed, which is drawn as words.
    """
    stored = next(iter(filter(None, table.units.values())), "1")
    units = table.cells["value"].map(table.units)
    shown = replace(table, cells=table.cells[units.isna() | (units == stored)])
    unit = choose_unit(stored, shown.cells["median"].to_numpy(float))
    medians, lows, highs = (shown.wide(name) / unit.size for name in ("median", "low", "high"))
    series = []
    names = _names(medians.columns.to_frame(index=False), otherwise="value")
    for column, name in zip(medians, names, strict=True):
        median = medians[column].to_numpy(float)
        low, high = (ends[column].to_numpy(float) for ends in (lows, highs))
        status = ["" if word == Status.OK else word for word in shown.wide("status", "")[column]]
        series.append(_Series(name, median, median - low, high - median, status))
    return series, unit


def _names(keys: pd.DataFrame, *, otherwise: str) -> list[str]:
    """Name each row of `keys` by the columns that vary, or by the column `otherwise` if none varies."""
    differing = [name for name in keys if keys[name].nunique(dropna=False) > 1] or [otherwise]
    rows = keys[differing].itertuples(index=False)
    return [", ".join(label(key).removesuffix(".time") for key in row) for row in rows]
