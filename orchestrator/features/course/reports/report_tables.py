"""A published table with the report's rows, columns, order and units, and beside each number our counterpart."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from lmsweep.analysis.data.columns import is_null, label
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.tables.pivot import Table
from lmsweep.orchestrator.features.course.reports.counterparts import counterpart
from lmsweep.orchestrator.features.course.reports.layouts import Layout, measure_of
from lmsweep.orchestrator.features.course.reports.table_results import Here, TableResults, conditions
from lmsweep.trials.results.flag_meanings import CAVEATS
from lmsweep.trials.results.outcome import Status

PUBLISHED, HERE, RATIO = "published", "here", "compared"
"""The three columns of each column of a report."""


def report_table(name: str, layout: Layout, rows: pd.DataFrame, results: Results) -> Table:
    """Return a table of a report, or a part of it, beside the results of its grid. rows: of `published`.

    Each number has cells in up to three columns, which are their `of`: PUBLISHED, HERE and RATIO. The cells have what
    `_cell` returns, the keys of the layout and `number` (the number's place in `rows`).
    """
    here = TableResults(results, rows)
    keys = [*layout.rows, *layout.cols]
    cells = _all_cells(rows, here, keys)
    # A flag of every number of a side is a note below the table.
    shared = {PUBLISHED: _shared(cells, PUBLISHED), HERE: _shared(cells, HERE), RATIO: []}
    cells["flags"] = [
        tuple(flag for flag in flags if flag not in shared[side])
        for side, flags in zip(cells["of"], cells["flags"], strict=True)
    ]
    notes = [f"{side}: {flag}" for side, flags in shared.items() for flag in flags]
    units = {value_of(row["metric"]): measure_of(row).unit for _, row in rows.iterrows()}
    compared = cells["value"][cells["of"] == RATIO].unique()
    units |= {value: "x" if value.startswith("ratio") else None for value in compared}
    if any(value.startswith("ratio") for value in compared):
        notes.append("ratio: published / here")
    devices = ", ".join(here.pairs["device_name"].unique())
    hardware = ", ".join(rows["hardware"].dropna().unique()) or "hardware not stated"
    return Table(
        cells=cells.set_axis(_positions(cells, layout)).sort_index(),
        rows=layout.rows,
        cols=[*layout.cols, "of"],
        units=units,
        conditions={one: label(rows[one].dropna().iloc[0]) for one in conditions() if _is_condition(rows, one, keys)},
        title=f"{name}: published ({hardware}) and here{f' ({devices})' if devices else ''}",
        notes=tuple(notes),
    )


def _all_cells(rows: pd.DataFrame, here: TableResults, keys: list[str]) -> pd.DataFrame:
    cells = []
    for number, (_, row) in enumerate(rows.iterrows()):
        place = {key: "" if is_null(row[key]) else row[key] for key in keys} | {"number": number}
        cells += [place | cell for cell in _cells(row, counterpart(here, row))]
    return pd.DataFrame(cells)


def _positions(cells: pd.DataFrame, layout: Layout) -> pd.MultiIndex:
    """Return the row and the column of each cell, by number. Columns: by the keys of the layout as they come, within
    these by PUBLISHED, HERE and RATIO, within these by value."""
    key_place = cells.groupby(layout.cols, sort=False).ngroup() if layout.cols else pd.Series(0, cells.index)
    side_place = cells["of"].map((PUBLISHED, HERE, RATIO).index)
    value_place = pd.Series(pd.factorize(cells["value"])[0], cells.index)
    columns = cells.groupby([key_place, side_place, value_place]).ngroup()  # sorted by the first, the second, the third
    rows = cells.groupby(layout.rows, sort=False).ngroup()  # as they come
    return pd.MultiIndex.from_arrays([rows, columns], names=["row", "column"])


def counted(table: Table) -> tuple[int, int]:
    """Return how many numbers the report has in a table, and how many of them have a counterpart here."""
    cells = table.cells[table.cells["word"] | (table.cells["status"] == Status.OK)]
    theirs, here = ({*cells["number"][cells["of"] == of]} for of in (PUBLISHED, HERE))
    return len(theirs), len(theirs & here)


_WORDS = {"peak_mem": "peak memory", "mem_before_backward": "memory before backward", "iteration_time": "time"}


def value_of(metric: str) -> str:
    """Return the name of a metric in a table."""
    return _WORDS.get(metric, metric.removeprefix("time_").removeprefix("mem_").replace("_", " "))


def _cells(row: pd.Series, here: Here) -> Iterator[dict[str, Any]]:
    """Yield the cells of a published number: itself, our counterpart or why there is none, and how they compare."""
    value, measure = value_of(row["metric"]), measure_of(row)
    caveats = tuple(f"{name}: {meaning}" for name, meaning in CAVEATS.items() if row[name])
    if row["metric"] == "dtype":
        yield _cell(PUBLISHED, value, word=row["dtype"], flags=caveats)
    elif is_null(row["value"]):
        yield _cell(PUBLISHED, value, status="blank" if row["status"] == "empty" else row["status"], flags=caveats)
    else:
        yield _cell(PUBLISHED, value, numbers=(row["value"] / measure.size, math.nan, math.nan), flags=caveats)
    differs = tuple(filter(None, [here.differs]))
    if here.missing:
        yield _cell(HERE, value, status=here.missing, reason=here.why)
    elif isinstance(here.value, str):
        yield _cell(HERE, value, word=here.value, flags=differs)
    else:
        numbers = tuple(number / measure.size for number in (here.value, here.low, here.high))
        yield _cell(HERE, value, numbers=numbers, flags=differs)
    # A table may have times and memory: the ratio of memory says so.
    suffix = f" of {value}" if row["unit"] == "B" else ""
    if here.ratio:
        yield _cell(RATIO, f"ratio{suffix}", numbers=here.ratio)
    if here.verdict:
        yield _cell(RATIO, f"verdict{suffix}", word=here.verdict)


def _cell(
    of: str,
    value: str,
    *,
    numbers: tuple[float, ...] = (math.nan,) * 3,
    word: str = "",
    status: str = "",
    reason: str = "",
    flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return a cell of a Table. value: what it is of. numbers: median and interval. word: what it shows in place of a
    number. status: why it is empty. flags: remarks on its number."""
    median, low, high = numbers
    return {
        "of": of,
        "value": value,
        "median": median,
        "low": low,
        "high": high,
        "status": word or status or str(Status.OK),
        "word": bool(word),
        "reason": reason,
        "flags": flags,
    }


def _shared(cells: pd.DataFrame, of: str) -> list[str]:
    """Return the flags that every number of one side has."""
    numbers = cells[(cells["of"] == of) & (cells["word"] | (cells["status"] == Status.OK))]
    if len(numbers) < 2:
        return []
    shared = set.intersection(*map(set, numbers["flags"]))
    return [flag for flag in numbers["flags"].iloc[0] if flag in shared]


def _is_condition(rows: pd.DataFrame, name: str, keys: list[str]) -> bool:
    return name not in keys and rows[name].nunique() == 1 and bool(rows[name].notna().all())
