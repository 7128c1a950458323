"""The layout that presets share: rows by model, context length and whatever else varies in the store."""

from dataclasses import replace

import pandas as pd

from lmsweep.analysis.data.selection import cells_of, with_above_peak
from lmsweep.analysis.tables.pivot import Table, arrange, default_layout, pivot, varying_keys
from lmsweep.analysis.tables.ratio_columns import Kind, with_ratios
from lmsweep.trials.spec.config import RequestError


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


def devices(frame: pd.DataFrame) -> list[str]:
    return ["device", "device_name"] if frame["device_name"].nunique() > 1 else []


def with_flags(frame: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of a listing with status, flags and reason of the rows that they were made from."""
    flags = [() if words is pd.NA else tuple(words) for words in rows["flags"].to_list()]
    reason = rows["reason"].astype(object).where(rows["reason"].notna(), "")
    return frame.assign(status=rows["status"], flags=pd.Series(flags, rows.index), reason=reason)


def with_peak_flags(frame: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return `with_flags`, with rates above the peak (column `mfu` of rows) marked too."""
    lines = with_flags(frame, rows)
    return lines.assign(flags=with_above_peak(lines["flags"], rows["mfu"]))
