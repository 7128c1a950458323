"""Bars in plain text: a table as a chart, and bars of ratios for a terminal."""

import math
from textwrap import wrap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmsweep.analysis.data.columns import NO_VALUE
from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.text_table import axis_names

LEAST_BAR = 10
"""Characters that the longest bar has at least, however wide the labels are."""
LEAST_RANGE = 1.25
"""Bars of ratios reach at least to this, so that differences of a few per cent look small."""
_EIGHTHS = " ▏▎▍▌▋▊▉"

Cell = tuple[int, int]


def bar_chart(table: Table, *, width: int) -> str:
    """Return one bar per cell, from zero, in lines of at most `width` characters if that leaves room for LEAST_BAR.

    A cell without a number shows its status. What all bars of a value have in common is above them.
    """
    values = dict.fromkeys(column[-1] for column in table.median.columns)
    return "\n\n".join(_chart(table, str(value), width) for value in values)


def _chart(table: Table, value: str, width: int) -> str:
    columns = [place for place, column in enumerate(table.median.columns) if column[-1] == value]
    medians = table.median.to_numpy(dtype=float)
    cells = [
        (row, column)
        for row in range(len(table.median))
        for column in columns
        if table.status.iat[row, column] != NO_VALUE
    ]
    numbers = {cell: float(medians[cell]) for cell in cells}
    unit = choose_unit(table.units[value] or "", numbers.values())
    names, labels, shared = _labels(table, cells)
    texts = {
        cell: str(table.status.iat[cell]) if math.isnan(number) else number_text(number / unit.size)
        for cell, number in numbers.items()
    }
    left, right = max(map(len, [names, *labels.values()])), max(map(len, texts.values()))
    room = max(LEAST_BAR, width - left - right - 4)
    longest = max((abs(number) for number in numbers.values() if not math.isnan(number)), default=0.0)
    lines = [f"{value} ({unit.name}), bars from 0" if unit.name else f"{value}, bars from 0"]
    conditions = ", ".join(f"{name} {text}" for name, text in (table.conditions | shared).items())
    lines += [*wrap(conditions, width, break_long_words=False, break_on_hyphens=False), "", names]
    for before, cell in zip([None, *cells], cells, strict=False):
        if before and cell[0] != before[0] and len(columns) > 1:
            lines.append("")
        share = 0.0 if math.isnan(numbers[cell]) or not longest else abs(numbers[cell]) / longest
        lines.append(f"{labels[cell]:<{left}}  {texts[cell]:>{right}}  {_bar(share, room)}".rstrip())
    return "\n".join(lines)


def _labels(table: Table, cells: list[Cell]) -> tuple[str, dict[Cell, str], dict[str, str]]:
    """The names of the keys that vary, their values for each cell below them, and the keys that do not vary."""
    index = table.median.index
    names = [*axis_names(index), *axis_names(table.median.columns)[:-1]]
    keys = {}
    for row, column in cells:
        of_row = index[row] if isinstance(index[row], tuple) else (index[row],)
        keys[row, column] = [str(key) for key in (*of_row, *table.median.columns[column][:-1])]
    levels = list(zip(*keys.values(), strict=True))
    varying = [place for place, level in enumerate(levels) if len(set(level)) > 1 or len(cells) == 1]
    widths = {place: max(map(len, [names[place], *levels[place]])) for place in varying}

    def line(texts: list[str]) -> str:
        return "  ".join(f"{texts[place]:<{widths[place]}}" for place in varying)

    shared = {names[place]: level[0] for place, level in enumerate(levels) if place not in varying}
    return line(names), {cell: line(texts) for cell, texts in keys.items()}, shared


def _bar(share: float, room: int) -> str:
    eighths = round(share * room * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


class Bars(NamedTuple):
    header: str
    """What a full bar means: `up to 1.25x`, in either direction."""
    texts: list[str]
    """One bar per ratio, all of the same width; empty for NaN."""


def bars(ratios: NDArray[np.float64], *, width: int) -> Bars:
    """Return a bar for each ratio, on a logarithmic scale: to the right of the middle above 1, to the left below it.

    width: odd.
    """
    half = width // 2
    logs = np.abs(np.log(ratios[np.isfinite(ratios) & (ratios > 0)]))
    reach = max(float(logs.max(initial=0.0)), float(np.log(LEAST_RANGE)))
    return Bars(header=f"up to {np.exp(reach):.3g}x", texts=[_ratio_bar(float(ratio), reach, half) for ratio in ratios])


def _ratio_bar(ratio: float, reach: float, half: int) -> str:
    if not math.isfinite(ratio) or ratio <= 0:
        return ""
    halves = round(abs(math.log(ratio)) / reach * half * 2)
    whole, space = "━" * (halves // 2), " " * (half - (halves + 1) // 2)
    if ratio < 1:
        return space + "╺" * (halves % 2) + whole + "│" + " " * half
    return " " * half + "│" + whole + "╸" * (halves % 2) + space
