"""A published table with the report's rows, columns, order and units, and beside each number our counterpart."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from lmsweep.analysis.data.columns import is_null, label
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.tables.pivot import Table
from lmsweep.orchestrator.features.course.reports.counterparts import counterpart
from lmsweep.orchestrator.features.course.reports.layouts import Layout, Measure, measure_of
from lmsweep.orchestrator.features.course.reports.table_results import Here, TableResults, conditions
from lmsweep.trials.results.flag_meanings import CAVEATS
from lmsweep.trials.results.outcome import Status

PUBLISHED, HERE, RATIO = "published", "here", "compared"
"""The three columns of each column of a report."""


def report_table(name: str, layout: Layout, rows: pd.DataFrame, results: Results) -> Table:
    """Return a table of a report, or a part of it, beside the results of its grid. rows: of `published`.

    Each number has cells in up to three columns, which are their `of`: PUBLISHED, HERE and RATIO. The cells have what
    `_cell` returns, the keys of the layout, `number` (the number's place in `rows`) and `value` (the metric's name).
    """
    here = TableResults(results, rows)
    lines = [(row, counterpart(here, row), measure_of(row)) for _, row in rows.iterrows()]
    keys = [*layout.rows, *layout.cols]
    shown = rows[keys].astype(object).where(rows[keys].notna(), "").assign(value=rows["metric"].map(value_of))
    keyed = []
    for number, (key, line) in enumerate(zip(shown.to_dict("records"), lines, strict=True)):
        keyed += [{**key, "number": number, **cell} for cell in _cells(*line)]
    cells = pd.DataFrame(keyed)
    index = _positions(cells, layout)
    notes = []
    for side in (PUBLISHED, HERE):  # a flag of every number of a side is a note below the table
        shared, cells["flags"] = _shared(cells, side)
        notes += [f"{side}: {words}" for words in shared]
    names = cells["value"][cells["of"] == RATIO].unique()
    units_of_ratios = {name: "x" if name.startswith("ratio") else None for name in names}
    if any(units_of_ratios.values()):
        notes.append("ratio: published / here")
    devices = ", ".join(here.pairs["device_name"].unique())
    hardware = ", ".join(rows["hardware"].dropna().unique()) or "hardware not stated"
    units = {value: measure.unit for value, (_, _, measure) in zip(shown["value"], lines, strict=True)}
    return Table(
        cells=cells.set_axis(index).sort_index(),
        rows=layout.rows,
        cols=[*layout.cols, "of"],
        units={**units, **units_of_ratios},
        conditions={one: label(rows[one].dropna().iloc[0]) for one in conditions() if _is_condition(rows, one, keys)},
        title=f"{name}: published ({hardware}) and here{f' ({devices})' if devices else ''}",
        notes=tuple(notes),
    )


def _positions(cells: pd.DataFrame, layout: Layout) -> pd.MultiIndex:
    """Return the row and the column of each cell, by number. Columns: by the keys of the layout as they come, within
    these by PUBLISHED, HERE and RATIO, within these by value."""
    keys = cells.groupby(layout.cols, sort=False).ngroup() if layout.cols else pd.Series(0, cells.index)
    sides = cells["of"].map({name: place for place, name in enumerate((PUBLISHED, HERE, RATIO))})
    values = cells["value"].map({value: place for place, value in enumerate(cells["value"].unique())})
    columns = pd.DataFrame({"keys": keys, "of": sides, "value": values})
    rows = cells.groupby(layout.rows, sort=False).ngroup()
    return pd.MultiIndex.from_arrays([rows, columns.groupby(list(columns)).ngroup()], names=["row", "column"])


def counted(table: Table) -> tuple[int, int]:
    """Return how many numbers the report has in a table, and how many of them have a counterpart here."""
    cells = table.cells[table.cells["word"] | (table.cells["status"] == Status.OK)]
    theirs, here = ({*cells["number"][cells["of"] == of]} for of in (PUBLISHED, HERE))
    return len(theirs), len(theirs & here)


_WORDS = {"peak_mem": "peak memory", "mem_before_backward": "memory before backward", "iteration_time": "time"}


def value_of(metric: str) -> str:
    """Return the name of a metric in a table."""
    return _WORDS.get(metric, metric.removeprefix("time_").removeprefix("mem_").replace("_", " "))


def _cells(row: pd.Series, here: Here, measure: Measure) -> Iterator[dict[str, Any]]:
    """Yield the cells of a published number: itself, our counterpart or why there is none, and how they compare."""
    caveats = tuple(f"{name}: {meaning}" for name, meaning in CAVEATS.items() if row[name])
    if row["metric"] == "dtype":
        yield _cell(PUBLISHED, word=row["dtype"], flags=caveats)
    elif is_null(row["value"]):
        yield _cell(PUBLISHED, status="blank" if row["status"] == "empty" else row["status"], flags=caveats)
    else:
        yield _cell(PUBLISHED, numbers=(row["value"] / measure.size, math.nan, math.nan), flags=caveats)
    differs = tuple(filter(None, [here.differs]))
    if here.missing:
        yield _cell(HERE, status=here.missing, reason=here.why)
    elif isinstance(here.value, str):
        yield _cell(HERE, word=here.value, flags=differs)
    else:
        numbers = tuple(number / measure.size for number in (here.value, here.low, here.high))
        yield _cell(HERE, numbers=numbers, flags=differs)
    # A table may have times and memory: the ratio of memory says so.
    suffix = "" if row["unit"] != "B" else f" of {value_of(row['metric'])}"
    if here.ratio:
        yield _cell(RATIO, numbers=here.ratio) | {"value": f"ratio{suffix}"}
    if here.verdict:
        yield _cell(RATIO, word=here.verdict) | {"value": f"verdict{suffix}"}


def _cell(
    of: str,
    *,
    numbers: tuple[float, ...] = (math.nan,) * 3,
    word: str = "",
    status: str = "",
    reason: str = "",
    flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return a cell of a Table. numbers: median and interval. word: what it shows in place of a number. status: why it
    is empty. flags: remarks on its number."""
    median, low, high = numbers
    return {
        "of": of,
        "median": median,
        "low": low,
        "high": high,
        "status": word or status or str(Status.OK),
        "word": bool(word),
        "reason": reason,
        "flags": flags,
    }


def _shared(cells: pd.DataFrame, of: str) -> tuple[list[str], pd.Series]:
    """Return the flags that every number of one side has, and the column `flags` without them."""
    numbers = cells[(cells["of"] == of) & (cells["word"] | (cells["status"] == Status.OK))]
    shared = set.intersection(*map(set, numbers["flags"])) if len(numbers) > 1 else set()
    in_order = dict.fromkeys(flag for flags in numbers["flags"] for flag in flags if flag in shared)
    rest = [
        tuple(flag for flag in flags if flag not in shared) if side == of else flags
        for side, flags in zip(cells["of"], cells["flags"], strict=True)
    ]
    return list(in_order), pd.Series(rest, cells.index, dtype=object)


def _is_condition(rows: pd.DataFrame, name: str, keys: list[str]) -> bool:
    return name not in keys and rows[name].nunique() == 1 and bool(rows[name].notna().all())
