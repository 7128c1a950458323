"""The layout that presets share: rows by model, context length and whatever else varies in the store."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import NO_VALUE
from lmsweep.analysis.data.results import nothing
from lmsweep.analysis.data.selection import cells_of, flag_tuples, values_in, with_above_peak
from lmsweep.analysis.tables.pivot import CELL_CONTENTS, Table, arrange, default_layout, pivot, varying_keys
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.statistics.median_interval import RatioInterval, ratio_interval

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


def layout(frame: pd.DataFrame, *, values: list[str], cols: list[str], title: str) -> Table:
    """Return a pivot whose rows are the model, the context length and whatever else varies."""
    rows, cols, values = default_layout(frame, cols=cols, values=values)
    return replace(pivot(frame, rows=rows, cols=cols, values=values, where={}), title=title)


def layout_parts(frame: pd.DataFrame, *, values: list[str], cols: list[str], title: str) -> Table:
    """Return a pivot of times with a row for each part: `forward.time` is the value `time` of the row `forward`."""
    cells = pd.concat(
        [cells_of(frame, frame, value).assign(part=value.removesuffix(".time"), value="time") for value in values]
    )
    size = ["model" if cells["model"].notna().any() else "d_model", "context_length"]
    rows = [*(name for name in varying_keys(cells, size, [*cols, "part"])), "part"]
    return replace(arrange(cells, rows=rows, cols=cols, values=["time"]), title=title)


def arrange_against(
    frame: pd.DataFrame, *, key: str, baselines: tuple[str, ...], kind: Kind, values: list[str], title: str
) -> Table:
    """Return times with a column for each value of `key`, and their ratios to the baseline column.

    The baseline is the first of `baselines` that occurs. Raises RequestError without one, or without another value.
    """
    found = frame[key].dropna().unique()
    if len(found) < 2:
        raise RequestError(f"all such results in the store have the same {key}, {', '.join(found)}: there is no ratio")
    baseline = next((word for word in baselines if word in found), None)
    if baseline is None:
        raise RequestError(f"the store has no result with {key} {' or '.join(baselines)} to compare the others with")
    table = layout_parts(frame, values=values, cols=[*devices(frame), key], title=title)
    return with_ratios(table, key=key, baseline=baseline, kind=kind)


def known_values(frame: pd.DataFrame, values: Sequence[str]) -> list[str]:
    """Return those of the values that the rows of a workload hold. Raises RequestError if they hold none."""
    stored = set(values_in(frame))
    known = [value for value in values if value in stored]
    if not known:
        raise nothing(frame["workload"].iloc[0])
    return known


def known_layout(frame: pd.DataFrame, values: Sequence[str], title: str) -> Table:
    """Return the `layout` of those values that the rows of a workload hold, by device. Raises RequestError for none."""
    return layout(frame, values=known_values(frame, values), cols=devices(frame), title=title)


def devices(frame: pd.DataFrame) -> list[str]:
    return ["device", "device_name"] if frame["device_name"].nunique() > 1 else []


def with_flags(frame: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of a listing with status, flags and reason of the rows that they were made from."""
    reason = rows["reason"].astype(object).where(rows["reason"].notna(), "")
    return frame.assign(status=rows["status"], flags=flag_tuples(rows["flags"]), reason=reason)


def with_peak_flags(frame: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return `with_flags`, with rates above the peak (column `mfu` of rows) marked too."""
    lines = with_flags(frame, rows)
    return lines.assign(flags=with_above_peak(lines["flags"], rows["mfu"]))
