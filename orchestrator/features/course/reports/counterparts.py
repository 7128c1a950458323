"""Our counterpart of a number of a report's table, or why there is none.

A `row` is one of `published()`; a null condition is one that the report does not state. A `pair` is one of
`lmsweep.paired`: our value `mine` with its ends, `ratio` (theirs / ours), `verdict`, and `differs` (conditions).
"""

from typing import cast

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import is_null
from lmsweep.analysis.reference import ITERATIONS
from lmsweep.orchestrator.features.course.reports.from_times import FROM_TIMES
from lmsweep.orchestrator.features.course.reports.from_workloads import FROM_WORKLOADS
from lmsweep.orchestrator.features.course.reports.table_results import Here, TableResults, stated
from lmsweep.trials.results.outcome import Status

_MODES = {
    "forward": ("train_forward",),
    "backward": ("forward_backward",),
    "forward_backward": ("forward_backward", "train_step"),
    "step": ("train_step",),
}
"""Phase of a report -> the modes here in which it runs."""
_VALUES = {
    ("forward", "time"): "forward.time",
    ("forward_backward", "time"): "step.time",
    ("forward", "peak_mem"): "forward.peak_allocated",
    ("step", "peak_mem"): "step.peak_allocated",
}
"""Phase and metric of a report -> the value here, for the cells that the report leaves blank."""
_FULL, _MIXED = ("fp32", "tf32"), ("bf16", "fp16")
"""Precisions that a report may mean by full, and by mixed."""


def counterpart(table: TableResults, row: pd.Series) -> Here:
    """Return our counterpart of a published number, or why there is none."""
    if row["workload"] in ("timing", "profile") and is_null(row["model"]):
        return Here(missing="not stated", why="the report does not state the model of this number")
    number = cast(int, row.name)
    if number in table.pairs.index:
        return _of_pair(table.pairs.loc[[number]].iloc[0], row)
    # A number that repeats another of its report has that number's pair.
    if row["repeated"] and (pair := table.beside(row, metric=row["metric"])) is not None:
        return _of_pair(pair, row)
    make = FROM_WORKLOADS.get(row["workload"]) or FROM_TIMES.get(row["phase"]) or FROM_TIMES.get(row["metric"])
    if make and (made := make(table, row)):
        return made
    return _missing(table, row)


def _with_same_conditions(table: TableResults, row: pd.Series) -> pd.DataFrame:
    """Return our rows with the conditions that the report states for a number."""
    alike = table.frame
    for name in stated():
        if not is_null(row[name]):
            alike = alike[alike[name].eq(row[name]).fillna(False).to_numpy(bool)]
    modes = _MODES.get(row["phase"], ()) if row["workload"] in ("timing", "memory") else ()
    alike = alike[alike["mode"].isin(modes)] if modes else alike
    if is_null(row["precision"]):
        return alike
    return alike[alike["precision"].isin(_FULL if row["precision"] in _FULL else _MIXED)]


def _missing(table: TableResults, row: pd.Series) -> Here:
    """Return why a number has no counterpart; for a blank cell of the report our number, if the store has it."""
    if not is_null(row["device"]) and not table.frame["device"].eq(row["device"]).any():
        return Here(missing="not measured", why=f"the store has no result of this table on the device {row['device']}")
    alike = _with_same_conditions(table, row)
    if is_null(row["value"]) and (ours := _of_blank_cell(alike, row)):
        return ours
    if not (failed := alike[alike["status"] != Status.OK]).empty:
        return Here(missing=str(failed["status"].iloc[-1]), why=str(failed["error"].iloc[-1]))
    if row["workload"] == "profile" or row["derived"]:
        return Here(missing="no counterpart", why=_NO_COUNTERPART)
    return Here(missing="not measured", why="the store has no result with the conditions that the report states")


def _of_blank_cell(alike: pd.DataFrame, row: pd.Series) -> Here | None:
    value = _VALUES.get((row["phase"], row["metric"]))
    found = alike[(alike["phase"] + "." + alike["metric"]).eq(value or "") & alike["median"].notna()]
    if found.empty:
        return None
    one = found.iloc[0]
    return Here(one["median"], one["low"], one["high"], differs=f"precision {one['precision']}")


_NO_COUNTERPART = "no kernel or operator of this name ran here, or the report derived the number in its own way"


def _of_pair(pair: pd.Series, row: pd.Series) -> Here:
    """Return our side of a pair as the counterpart of a number, with what the report leaves open."""
    scale, words = 1, [pair["differs"]]
    if is_null(row["unit"]):  # the table prints the total; pairs hold the time of one iteration
        scale = ITERATIONS
        words.append(f"read as seconds of {ITERATIONS} iterations")
    if is_null(row["context_length"]):
        words.append(f"the report states no context length, {pair['context_length']} here")
    return Here(
        value=pair["mine"] * scale,
        low=pair["mine_low"] * scale,
        high=pair["mine_high"] * scale,
        ratio=None if np.isnan(pair["ratio"]) else (pair["ratio"], pair["ratio_low"], pair["ratio_high"]),
        verdict=pair["verdict"],
        differs="; ".join(words),
    )
