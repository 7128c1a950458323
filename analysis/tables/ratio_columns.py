"""Ratios of two medians with intervals, and tables that show them next to the medians."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import NO_VALUE
from lmsweep.analysis.tables.pivot import CELL_CONTENTS, Table
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.statistics.ratio import RatioInterval, ratio_interval

Kind = Literal["speed_up", "change"]
"""speed_up: baseline / median; change: median / baseline - 1."""


def with_ratios(table: Table, *, key: str, baseline: str, kind: Kind) -> Table:
    """Return the table with a column for each value's ratio to the column whose `key` has the value `baseline`.

    A ratio needs both medians, and has the flags of both.
    """
    columns = table.median.columns
    names = [str(name) for name in columns.names]
    place = names.index(key)
    parts = {name: [getattr(table, name)] for name in CELL_CONTENTS}
    units: dict[str, str | None] = {}
    for column in columns:
        base = (*column[:place], baseline, *column[place + 1 :])
        if column[place] == baseline or base not in columns:
            continue
        value = kind if column[-1] == "time" else f"{column[-1]}.{kind}"
        units[value] = "share" if kind == "change" else "x"
        made = pd.MultiIndex.from_tuples([(*column[:-1], value)], names=columns.names)
        for name, wide in _ratio(table, column, base, kind).items():
            parts[name].append(wide.set_axis(made, axis="columns"))
    return replace(
        table, **{name: pd.concat(frames, axis="columns") for name, frames in parts.items()}, units=table.units | units
    )


def _ratio(table: Table, column: Any, base: Any, kind: Kind) -> dict[str, pd.DataFrame]:
    of, to = (
        [getattr(table, name)[which].to_numpy() for name in ("median", "low", "high")] for which in (column, base)
    )
    numbers = ratio_interval(*of, *to) if kind == "change" else ratio_interval(*to, *of)
    if kind == "change":
        numbers = RatioInterval(*(number - 1 for number in numbers))
    known = ~np.isnan(numbers[0])
    flags = [
        tuple(dict.fromkeys((*one, *other))) if both else ()
        for one, other, both in zip(table.flags[column], table.flags[base], known, strict=True)
    ]
    index = table.median.index
    contents = {
        **dict(zip(("median", "low", "high"), numbers, strict=True)),
        **{
            name: np.full(len(index), empty) for name, empty in CELL_CONTENTS.items() if name in ("processes", "spread")
        },
        "status": np.where(known, str(Status.OK), NO_VALUE),
        "flags": pd.Series(flags, index, dtype=object),
        "reason": np.full(len(index), ""),
    }
    return {name: pd.DataFrame({0: content}, index) for name, content in contents.items()}
