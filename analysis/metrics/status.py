"""Says what a store holds: results by status, per sweep and device, by flag, and by the grids that they fill."""

import shlex
from collections.abc import Callable, Sequence
from math import ceil

import pandas as pd

from lmsweep.analysis.data.pooled_rows import newest_rows
from lmsweep.analysis.data.selection import flag_tuples, select
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.measured_grids import MeasuredGrid, grids_of, measured_grid
from lmsweep.analysis.tables.pivot import Table, pivot
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.spec.reference import short_name

MOST_PARTS = 8
"""A grid whose table does not fit a screen is cut into at most this many parts."""

MOST_ROWS = 24
"""Rows of a table that fits a screen beside its header and its notes."""

LEAST_BUSY_SHARE = 0.05
"""A busy machine is mentioned if it was busy in more than this share of the trials, or of the cells compared."""

Fits = Callable[[Sequence[str | Table | Listing]], bool]
"""Whether these texts and tables fit a screen."""

_RESULT = ["measurement_id", "environment_id", "workload"]


def counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the number of results by status: columns sweep, device_name and one per status that occurs.

    If the frame was loaded with pooled=False, the newest attempt with a final status counts, as for `lmsweep plan`.
    """
    results = newest_rows(frame, prefer=[status for status in Status if status.is_final]).drop_duplicates(_RESULT)
    table = pd.crosstab([results["sweep"], results["device_name"]], results["status"])
    met = [status.value for status in Status if status in table.columns]
    return table[met].rename_axis(columns=None).reset_index()


def count_words(frame: pd.DataFrame) -> str:
    """Return a line for each sweep and device: how many of its results have each status."""
    return "\n".join(
        f"sweep {line['sweep']} on {line['device_name']}: "
        + ", ".join(f"{line[status]} {status}" for status in Status if line.get(status))
        for line in counts(frame).to_dict("records")
    )


def flag_counts(frame: pd.DataFrame) -> dict[Flag, int]:
    """Return how many results have each flag in any of their rows, the most frequent first, then by name."""
    rows = newest_rows(frame)
    flags = rows[_RESULT].assign(flag=rows["flags"].to_list()).explode("flag")
    counted = flags.drop_duplicates()["flag"].value_counts()
    found = {flag: int(counted[flag.value]) for flag in Flag if flag.value in counted}
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def busy_words(rows: pd.DataFrame) -> str:
    """Return in how many trials the machine was busy; empty if there were hardly any."""
    is_busy = [Flag.BUSY_HOST in flags for flags in flag_tuples(rows["flags"])]
    busy, count = rows["attempt_id"][is_busy].nunique(), rows["attempt_id"][rows["median"].notna()].nunique()
    said = (
        f"the machine was busy during {busy} of {count} trials: other programs took CPU time, so times may be too long"
    )
    return said if busy > LEAST_BUSY_SHARE * count else ""


def overview(frame: pd.DataFrame, store: str, where: dict[str, str], fits: Fits) -> list[str]:
    """Return counts by status, and what was measured: a line for each grid, with the command that prints its table.

    frame: rows of `lmsweep.load`. where: conditions on them. Grids are cut until their tables fit a screen, and joined
    until this list fits. Nothing is returned for a single grid that cannot be cut.
    """
    chosen = select(frame, where)
    results = chosen.drop_duplicates(_RESULT)

    def said(grids: Sequence[list[MeasuredGrid]]) -> list[str]:
        return [count_words(chosen), "\n".join(_lines(part, store, where) for parts in grids for part in parts)]

    cut = [_cut(frame, grid, where, fits) for grid in grids_of(results)]
    if len(cut) == len(cut[0]) == 1:
        return []  # a single grid, in one part
    # First join the parts of the grid that has the most, until the list fits or each grid is whole.
    while not fits(said(cut)) and max(map(len, cut)) > 1:
        most = max(range(len(cut)), key=lambda place: len(cut[place]))
        cut[most] = [measured_grid(results, pd.concat([part.rows for part in cut[most]]))]
    if fits(said(cut)):
        return said(cut)
    # Then join all grids of a workload, beginning with the workload that has the fewest results.
    whole = [grid for (grid,) in cut]
    for workload in results["workload"].value_counts(ascending=True).index:
        rows = results[results["workload"] == workload]
        is_only_workload = len(rows) == len(results)
        if not fits(said([whole])) and not is_only_workload:
            first = [grid.workload for grid in whole].index(workload)
            before, after = whole[:first], [grid for grid in whole[first:] if grid.workload != workload]
            whole = [*before, measured_grid(results, rows), *after]
    return said([whole])


def _cut(frame: pd.DataFrame, grid: MeasuredGrid, where: dict[str, str], fits: Fits) -> list[MeasuredGrid]:
    """Return the grid, in parts if its table does not fit."""
    conditions = where | grid.where
    table = pivot(frame, where=conditions)
    sizes = {name: grid.axes[name] for name in table.rows if grid.axes.get(name, 1) > 1}
    if not sizes or fits([count_words(grid.rows), table]):
        return [grid]
    # Along an axis of more than MOST_PARTS values, parts have several.
    rows_of_part = {name: len(table) / size * ceil(size / MOST_PARTS) for name, size in sizes.items()}
    fitting = [name for name in sizes if rows_of_part[name] <= MOST_ROWS]
    axis = min(fitting, key=sizes.__getitem__) if fitting else max(sizes, key=sizes.__getitem__)
    return grid.along(axis, MOST_PARTS)


def _lines(grid: MeasuredGrid, store: str, where: dict[str, str]) -> str:
    by_status = grid.rows["status"].value_counts()
    axes = ", ".join(f"{name} ({count})" for name, count in grid.axes.items())
    met = ", ".join(f"{by_status[status]} {status}" for status in Status if status in by_status)
    conditions = [word for name, text in (where | grid.where).items() for word in ("--where", f"{name}={text}")]
    command = shlex.join(["lmsweep", "table", store, *conditions])
    return f"{short_name(grid.workload)}{' over ' if axes else ''}{axes}: {met}\n  {command}"
