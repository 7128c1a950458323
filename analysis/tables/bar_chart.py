"""A table as a bar chart in plain text: one bar per cell, from zero, on a linear scale for each value."""

import math

from lmsweep.analysis.tables.number_format import choose_unit, number_text
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.text_table import axis_names

LEAST_BAR = 10
"""Characters that the longest bar has at least, however wide the labels are."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar_chart(table: Table, *, width: int) -> str:
    """Return the chart, with lines of at most `width` characters if the labels leave room for bars of LEAST_BAR.

    Bars are in the order of the table's rows, those of a row together. A cell without a number shows its status.
    """
    parts = []
    for value in dict.fromkeys(column[-1] for column in table.median.columns):
        columns = [place for place, column in enumerate(table.median.columns) if column[-1] == value]
        cells = [(row, column) for row in range(len(table.median)) for column in columns]
        medians = table.median.to_numpy(dtype=float)
        numbers = {cell: float(medians[cell]) for cell in cells}
        unit = choose_unit(table.units[value] or "", numbers.values())
        labels = {cell: _label(table, *cell) for cell in cells}
        texts = {
            cell: str(table.status.iat[cell]) if math.isnan(number) else number_text(number / unit.size)
            for cell, number in numbers.items()
        }
        left, right = max(map(len, labels.values())), max(map(len, texts.values()))
        room = max(LEAST_BAR, width - left - right - 4)
        longest = max((abs(number) for number in numbers.values() if not math.isnan(number)), default=0.0)
        lines = [f"{value} ({unit.name}), bars from 0" if unit.name else f"{value}, bars from 0", ""]
        for row, cell in enumerate(cells):
            if row and cell[0] != cells[row - 1][0] and len(columns) > 1:
                lines.append("")
            share = 0.0 if math.isnan(numbers[cell]) or not longest else abs(numbers[cell]) / longest
            lines.append(f"{labels[cell]:<{left}}  {texts[cell]:>{right}}  {_bar(share, room)}".rstrip())
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _label(table: Table, row: int, column: int) -> str:
    keys = table.median.index[row]
    names = (
        [str(key) for key in (keys if isinstance(keys, tuple) else (keys,))] if axis_names(table.median.index) else []
    )
    return " ".join([*names, *map(str, table.median.columns[column][:-1])])


def _bar(share: float, room: int) -> str:
    eighths = round(share * room * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
