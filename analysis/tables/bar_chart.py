"""Bars in plain text: a table as a chart, and bars of ratios for a terminal."""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.data.columns import NO_VALUE
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.text_table import axis_names

LONGEST_BAR = 28
"""Characters."""
LEAST_RANGE = 1.25
"""Bars of ratios reach at least to this, so that differences of a few per cent look small."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar_charts(table: Table) -> list[Listing]:
    """Return a listing for each value of the table, with a bar from 0 in each line."""
    names = [*axis_names(table.median.index), *axis_names(table.median.columns)[:-1]]
    found = []
    for value, unit in table.units.items():
        lines = [
            [*row, *column[:-1], table.median.at[row, column], table.status.at[row, column]]
            for row in table.median.index
            for column in table.median.columns
            if column[-1] == value and table.status.at[row, column] != NO_VALUE
        ]
        frame = pd.DataFrame(lines, columns=[*names, value, "status"])
        longest = frame[value].abs().max()
        frame["bar"] = [_bar(0.0 if math.isnan(one) else abs(one) / longest) for one in frame[value]]
        title, conditions = f"{value}, bars from 0", table.conditions
        units = {value: unit} if unit else {}
        found.append(Listing(title=title, frame=frame, keys=names, units=units, conditions=conditions))
    return found


def _bar(share: float) -> str:
    eighths = round(share * LONGEST_BAR * 8)
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
