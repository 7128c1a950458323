"""A table as a bar chart in plain text: one bar per cell, from zero, on a linear scale for each value."""

import math
from textwrap import wrap

from lmsweep.analysis.data.columns import NO_VALUE
from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.text_table import axis_names

LEAST_BAR = 10
"""Characters that the longest bar has at least, however wide the labels are."""
_EIGHTHS = " ▏▎▍▌▋▊▉"

Cell = tuple[int, int]
"""Row and column of a table."""


def bar_chart(table: Table, *, width: int) -> str:
    """Return the chart, with lines of at most `width` characters if the labels leave room for bars of LEAST_BAR.

    Bars are in the order of the table's rows, those of a row together. A cell without a number shows its status; a cell
    for which there is no trial is left out. What all bars of a value have in common is above them.
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
    """Return the names of the keys that vary, their values for each cell below them, and the keys that do not vary."""
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
