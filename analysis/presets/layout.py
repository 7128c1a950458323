"""`Pivot`, a preset table of one workload; ratio columns; the flags in the rows of listings."""

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import pandas as pd

from lmsweep.analysis.data.columns import in_order
from lmsweep.analysis.data.results import Results, nothing
from lmsweep.analysis.data.selection import cells_of, flag_tuples, values_in
from lmsweep.analysis.tables.pivot import Table, arrange, pivot, varying_keys
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.statistics.median_interval import ratio_interval

Kind = Literal["speed_up", "change"]
"""speed_up: baseline / median; change: median / baseline - 1."""

_NUMBERS = ("median", "low", "high")


def with_ratios(table: Table, *, key: str, baseline: str, kind: Kind) -> Table:
    """Return the table with a column for each value's ratio to the column whose `key` has the value `baseline`.

    A ratio needs both medians, and has the flags of both.
    """
    cells = table.cells.reset_index()
    is_base = cells[key].eq(baseline).to_numpy(bool, na_value=False)
    # A pair of cells agrees in the row and in all column keys but this one.
    same = ["row", *(name for name in (*table.cols, "value") if name != key)]
    pairs = cells[~is_base].merge(cells[is_base], on=same, suffixes=("", "_of_baseline"))
    numbers = [pairs[name].to_numpy() for name in _NUMBERS]
    of_baseline = [pairs[f"{name}_of_baseline"].to_numpy() for name in _NUMBERS]
    if kind == "change":
        ends, subtracted = ratio_interval(*numbers, *of_baseline), 1.0
    else:
        ends, subtracted = ratio_interval(*of_baseline, *numbers), 0.0
    flags_of_both = pairs["flags"] + pairs["flags_of_baseline"]  # tuples
    flags = [tuple(dict.fromkeys(words)) for words in flags_of_both]
    found = pairs[[*table.rows, *table.cols]].assign(
        row=pairs["row"],
        column=pairs["column"] + cells["column"].max() + 1,  # after all columns of numbers
        value=[kind if value == "time" else f"{value}.{kind}" for value in pairs["value"]],
        flags=pd.Series(flags, dtype=object),
        status=str(Status.OK),
        reason="",
        **{name: number - subtracted for name, number in zip(_NUMBERS, ends, strict=True)},
    )
    found = found[found["median"].notna()]
    units: dict[str, str | None] = dict.fromkeys(found["value"], "share" if kind == "change" else "x")
    whole = pd.concat([cells, found]).set_index(["row", "column"]).sort_index()
    return replace(table, cells=whole, units=table.units | units)


@dataclass(frozen=True)
class Pivot:
    """A table of values of one workload, with a row for each result. Called with results, it makes the table."""

    workload: str
    values: Sequence[str]
    """Such as `step.time`; `rank*` is any rank. Those without results are left out; if all failed, the first stays."""
    title: str
    _: KW_ONLY
    rows: tuple[str, ...] = ()
    """The first row keys; other keys that vary follow. By default the model and the context length come first."""
    cols: tuple[str, ...] = ()
    by_device: bool = True
    """Whether devices are groups of columns if there are several."""
    if_varying: tuple[str, ...] = ()
    """Further column keys, if results differ in them."""
    parts: bool = False
    """Whether each part of a step has its own row: `forward.time` is then the value `time` of the row `forward`."""
    against: tuple[str, ...] = ()
    """Values of the last column key; the first that occurs is the baseline, to which other columns have ratios."""
    kind: Kind = "speed_up"
    together: bool = False
    """Whether all values are printed in the same unit."""
    above: float | None = None
    """Values without a median above this are left out."""
    of: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame
    """Selects the rows of the table among those of the workload."""

    def __call__(self, results: Results) -> Table:
        """Return the table. Raises RequestError without such values, without a baseline, or with nothing to compare."""
        frame = self.of(results.of(self.workload))
        baseline = self._baseline(frame) if self.against else ""
        values = self._held(frame)
        varying = [name for name in self.if_varying if frame[name].nunique(dropna=False) > 1]
        cols = [*(device_columns(frame) if self.by_device else ()), *self.cols, *varying]
        if self.parts:
            table = _by_part(frame, values, cols)
        else:
            rows = varying_keys(frame, [*self.rows], cols) if self.rows else None
            table = pivot(frame, rows=rows, cols=cols, values=values)
        table = replace(table, title=self.title, together=tuple(values) if self.together else ())
        return with_ratios(table, key=self.cols[-1], baseline=baseline, kind=self.kind) if baseline else table

    def _held(self, frame: pd.DataFrame) -> list[str]:
        """Return those of `values` that the frame has, with `rank*` replaced by the ranks there are."""
        if not values_in(frame):
            return [*self.values[:1]]
        held = values_in(frame if self.above is None else frame[frame["median"] > self.above])
        names = in_order(pd.DataFrame({"value": held}), ["value"])["value"].to_list()
        if values := [name for value in self.values for name in fnmatch.filter(names, value)]:
            return values
        raise nothing(self.workload)

    def _baseline(self, frame: pd.DataFrame) -> str:
        key = self.cols[-1]
        found = frame[key].dropna().unique()
        if len(found) < 2:
            raise RequestError(
                f"all such results in the store have the same {key}, {', '.join(found)}: there is no ratio"
            )
        if not (known := [word for word in self.against if word in found]):
            wanted = f"{key} {' or '.join(self.against)}"
            raise RequestError(f"the store has no result with {wanted} to compare the others with")
        return known[0]


def device_columns(frame: pd.DataFrame) -> list[str]:
    return ["device", "device_name"] if frame["device_name"].nunique() > 1 else []


def _by_part(frame: pd.DataFrame, values: list[str], cols: list[str]) -> Table:
    cells = pd.concat(
        [cells_of(frame, frame, value).assign(part=value.removesuffix(".time"), value="time") for value in values]
    )
    size = ["model" if cells["model"].notna().any() else "d_model", "context_length"]
    rows = [*(name for name in varying_keys(cells, size, [*cols, "part"])), "part"]
    return arrange(cells, rows=rows, cols=cols, values=["time"])


def with_flags(frame: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of a listing with status, flags and reason of the rows that they were made from."""
    reason = rows["reason"].astype(object).where(rows["reason"].notna(), "")
    return frame.assign(status=rows["status"], flags=flag_tuples(rows["flags"]), reason=reason)
