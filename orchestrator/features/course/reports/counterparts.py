"""What a store has for the numbers of a report's table, and why some are missing."""

from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import is_null
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.reference import ITERATIONS, published
from lmsweep.orchestrator.features.course.reports.from_times import FROM_TIMES
from lmsweep.orchestrator.features.course.reports.from_workloads import FROM_WORKLOADS
from lmsweep.orchestrator.features.course.reports.here import Here
from lmsweep.orchestrator.features.course.reports.published_numbers import conditions, pairs_of
from lmsweep.trials.results.outcome import Status

_MODES = {
    "forward": ("train_forward",),
    "backward": ("forward_backward",),
    "forward_backward": ("forward_backward", "train_step"),
    "step": ("train_step",),
}
_VALUES = {
    ("forward", "time"): "forward.time",
    ("forward_backward", "time"): "step.time",
    ("forward", "peak_mem"): "forward.peak_allocated",
    ("step", "peak_mem"): "step.peak_allocated",
}
"""Phase and metric of a report -> the value here, for the cells that the report leaves blank."""
_FULL, _MIXED = ("fp32", "tf32"), ("bf16", "fp16")


def _stated() -> list[str]:
    """Conditions that a result and a published number share, where both have them, besides the precision."""
    return [name for name in conditions() if name not in ("precision", "measure_steps")]


class Counterparts:
    """What a store has for the numbers of one table."""

    def __init__(self, results: Results, rows: pd.DataFrame) -> None:
        """results: of the trials of the table's grid. rows: of `published`, those of the table."""
        self.results, self.rows, self.frame = results, rows, results.everything
        self._report = published().query("source == @rows.source.iloc[0]")
        pairs = pairs_of(results)
        pairs = pairs[pairs.index.isin(self._report.index)]
        if rows["device"].nunique() > 1:  # its columns, or its rows, are devices
            pairs = pairs[pairs["device"].eq(pairs["device_there"])]
        # Of several devices, the one that has most of the table.
        cells = pairs[pairs.index.isin(rows.index)].groupby("device_name").size()
        pairs = pairs.assign(cells=-pairs["device_name"].map(cells).fillna(0)).sort_values("cells", kind="stable")
        self.pairs = pairs[~pairs.index.duplicated()]
        self._there = self._report.loc[self.pairs.index]

    def of(self, row: pd.Series) -> Here:
        """Return what stands here for a number."""
        number = cast(int, row.name)
        if self._names_no_model(row):
            return self._missing(row)
        if number in self.pairs.index:
            return _of_pair(self.pairs.iloc[[*self.pairs.index].index(number)], row)
        if row["repeated"] and (pair := self.beside(row, metric=row["metric"])) is not None:
            return _of_pair(pair, row)
        names = (row["phase"], row["metric"])
        make = FROM_WORKLOADS.get(row["workload"]) or next(
            (FROM_TIMES[name] for name in names if name in FROM_TIMES), None
        )
        return (make and make(self, row)) or self._missing(row)

    def beside(self, row: pd.Series, *, metric: str = "time", **other: Any) -> pd.Series | None:
        """Return our result that stands beside a time or peak of the same run, or of one with other conditions."""
        same = (self._there["metric"] == metric).to_numpy(copy=True)
        if (of_table := same & self._there.index.isin(self.rows.index)).any():
            same = of_table  # a number of another table may state less
        wanted = {name: other.get(name, row[name]) for name in ("phase", "precision", *_stated())}
        for name, value in wanted.items():
            if not is_null(value):
                same &= (self._there[name].isna() | self._there[name].eq(value).fillna(False)).to_numpy(bool)
        return self.pairs[same].iloc[0] if same.any() else None

    def stored(self, pair: pd.Series, value: str) -> pd.Series | None:
        """Return the row of a value, such as `step.time`, of the result of a pair."""
        place = self._places.get((pair["measurement_id"], pair["environment_id"], *value.split(".")))
        return None if place is None else self.frame.iloc[place]

    @cached_property
    def _places(self) -> dict[tuple[Any, ...], int]:
        keys = self.frame[["measurement_id", "environment_id", "phase", "metric"]].itertuples(index=False, name=None)
        known = self.frame["median"].notna()
        return {key: place for place, (key, has) in enumerate(zip(keys, known, strict=True)) if has}

    def _names_no_model(self, row: pd.Series) -> bool:
        return row["workload"] in ("timing", "profile") and is_null(row["model"])

    def _same_run(self, row: pd.Series) -> pd.DataFrame:
        """Return the rows with the conditions that the report states."""
        alike = self.frame
        for name in _stated():
            if not is_null(row[name]):
                alike = alike[alike[name].eq(row[name]).fillna(False).to_numpy(bool)]
        modes = _MODES.get(row["phase"], ()) if row["workload"] in ("timing", "memory") else ()
        alike = alike[alike["mode"].isin(modes)] if modes else alike
        if is_null(row["precision"]):
            return alike
        return alike[alike["precision"].isin(_FULL if row["precision"] in _FULL else _MIXED)]

    def _missing(self, row: pd.Series) -> Here:
        """Return why nothing stands here for a number."""
        if self._names_no_model(row):
            return Here(missing="not stated", why="the report does not state the model of this number")
        if not is_null(row["device"]) and not self.frame["device"].eq(row["device"]).any():
            return Here(
                missing="not measured", why=f"the store has no result of this table on the device {row['device']}"
            )
        alike = self._same_run(row)
        values = (alike["phase"] + "." + alike["metric"]).eq(_VALUES.get((row["phase"], row["metric"]), ""))
        if is_null(row["value"]) and not (ok := alike[values & alike["median"].notna()]).empty:
            one = ok.iloc[0]
            return Here(one["median"], one["low"], one["high"], differs=f"precision {one['precision']}")
        if not (failed := alike[alike["status"] != Status.OK]).empty:
            return Here(missing=str(failed["status"].iloc[-1]), why=str(failed["error"].iloc[-1]))
        if row["workload"] == "profile" or row["derived"]:
            return Here(missing="no counterpart", why=_NO_COUNTERPART)
        return Here(missing="not measured", why="the store has no result with the conditions that the report states")


_NO_COUNTERPART = "no kernel or operator of this name ran here, or the report derived the number in its own way"


def _of_pair(pair: pd.Series, row: pd.Series) -> Here:
    size, words = 1, [pair["differs"]]
    if is_null(row["unit"]):
        size = ITERATIONS
        words.append(f"read as seconds of {ITERATIONS} iterations")
    if is_null(row["context_length"]):
        words.append(f"the report states no context length, {pair['context_length']} here")
    return Here(
        value=pair["mine"] * size,
        low=pair["mine_low"] * size,
        high=pair["mine_high"] * size,
        ratio=None if np.isnan(pair["ratio"]) else (pair["ratio"], pair["ratio_low"], pair["ratio_high"]),
        verdict=pair["verdict"],
        differs="; ".join(words),
    )
