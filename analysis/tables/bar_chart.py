"""Charts in plain text: a table with bars, and intervals as strips."""

import math

import numpy as np

from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.trials.statistics.median_interval import Floats

LONGEST_BAR = 28
"""Width of the longest bar, in characters."""
HALF_STRIP = 5
"""Width of half a strip, in characters."""
LEAST_REACH = 0.2
"""Smallest difference that the half of a strip stands for, so that differences of a few per cent look small."""

_EIGHTHS: tuple[str, ...] = ("", *"▏▎▍▌▋▊▉")
"""The end of a bar, by the eighths of a character that it fills."""


def bar_charts(table: Table) -> list[Listing]:
    """Return a listing for each value of the table, with a bar from 0 in each line."""
    keys, cells, found = [*table.rows, *table.cols], table.cells, []
    for value, unit in table.units.items():
        lines = cells.loc[cells["value"] == value, [*keys, "median", "status"]]
        frame = lines.rename(columns={"median": value}).reset_index(drop=True)
        longest = frame[value].abs().max() or 1.0  # numbers that are all 0 have no bars
        frame["bar"] = [_bar(0.0 if math.isnan(one) else abs(one) / longest) for one in frame[value]]
        title, conditions = f"{value}, bars from 0", table.conditions
        units = {value: unit} if unit else {}
        found.append(Listing(title=title, frame=frame, keys=keys, units=units, conditions=conditions))
    return found


def _bar(share: float) -> str:
    eighths = round(share * LONGEST_BAR * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


def strips(lows: Floats, middles: Floats, highs: Floats) -> list[str]:
    """Return each interval as a strip around 0, `·····│·─●─·`; empty if its middle is NaN. All have one scale."""
    reach = max(float(np.nanmax(np.abs(middles), initial=0.0)), LEAST_REACH)
    each = zip(lows, middles, highs, strict=True)
    return ["" if np.isnan(middle) else _strip(low, middle, high, reach) for low, middle, high in each]


def _strip(low: float, middle: float, high: float, reach: float) -> str:
    """Draw an interval from -reach to reach. What lies beyond is drawn at its end, and no end that is NaN."""
    ends = [middle if np.isnan(end) else end for end in (low, middle, high)]
    first, dot, last = (round(HALF_STRIP * (1 + float(np.clip(end / reach, -1.0, 1.0)))) for end in ends)
    cells = ["─" if first <= place <= last else "·" for place in range(2 * HALF_STRIP + 1)]
    cells[HALF_STRIP] = "┼" if first <= HALF_STRIP <= last else "│"  # 0, unless the middle is there
    cells[dot] = "●"
    return "".join(cells)
