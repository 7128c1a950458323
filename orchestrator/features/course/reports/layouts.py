"""How a report arranges a table: which conditions are its rows, which its columns, and in which units it prints.

The rows of all frames here are those of `published()`: a number each, with `metric`, `unit`, `note` and conditions.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import pandas as pd

from lmsweep.analysis.data.columns import is_null

SUBJECTS = ("model", "d_model", "context_length", "label")
"""The subject of a line. These conditions are rows, and so are all that vary more slowly; the others are columns."""
_OPTIONS = ("device", "precision", "compile", "phase")
_KEYS = (*SUBJECTS, *_OPTIONS)


class Layout(NamedTuple):
    rows: list[str]
    cols: list[str]


class Measure(NamedTuple):
    """A unit that a report prints: its name, and its size in the stored unit."""

    unit: str | None
    """None: it has none, since it is a word."""
    size: float


LAYOUTS: dict[str, Layout] = {
    "seed0 benchmarking_mixed_precision": Layout(["model", "precision"], ["phase"]),
    "seed3 performance_comparison_small": Layout(["label"], ["precision"]),
    "seed3 performance_comparison_large": Layout(["label"], ["precision"]),
    "seed3 transformer_compile": Layout(["phase"], ["label"]),
    "seed3 run_log_small": Layout(["precision", "phase"], []),
    "seed3 run_log_large": Layout(["precision", "phase"], []),
}
"""Table -> its layout, where it does not follow from the order of the numbers."""

_OF_PARAMETERS = ("params", "params_nominal")
_SHARES = ("share", "change", "saving", "cv", "difference")


def parts_of(name: str, rows: pd.DataFrame) -> Iterator[tuple[Layout, pd.DataFrame]]:
    """Return the parts of a table, each with its layout: the numbers of parameters, of iterations, and all others.

    rows: those of the table, in the report's order.
    """
    # The model_table has the parameters of each model beside its times.
    parameters = rows["metric"].isin(_OF_PARAMETERS) & (name != "seed4 model_table")
    iterations = rows["metric"].eq("iteration_time")
    for part in (rows[parameters], rows[iterations]):
        if len(part):
            yield layout_of(part), part
    rest = rows[~parameters & ~iterations]
    if len(rest):
        yield LAYOUTS.get(name) or layout_of(rest), rest


def layout_of(rows: pd.DataFrame) -> Layout:
    """Return the layout that follows from the order of a table's numbers: what varies slowest is rows."""
    keys = _varying(rows)
    if rows["metric"].eq("iteration_time").all():  # the label is the iteration
        return Layout(["label"], [name for name in keys if name != "label"])
    slowest_first = sorted(keys, key=lambda name: _changes(rows[name]))
    subjects = [place for place, name in enumerate(slowest_first) if name in SUBJECTS]
    if subjects:
        count = subjects[-1] + 1
        return Layout(slowest_first[:count], slowest_first[count:])
    # Only what varies fastest is columns. If nothing varies, the table is one row.
    return Layout(slowest_first[:-1] or ["model"], slowest_first[-1:])


def _varying(rows: pd.DataFrame) -> list[str]:
    """Return the keys that distinguish the numbers."""
    # A condition that only some of the numbers state is the same for all; a phase or a label that some lack is not.
    keys = [name for name in _KEYS if rows[name].nunique(dropna=name not in ("phase", "label")) > 1]
    if rows.groupby("model", dropna=False)["d_model"].nunique().max() <= 1:  # the model determines the width
        keys = [name for name in keys if name != "d_model"]
    without_label = [name for name in keys if name != "label"]
    needs_label = rows.duplicated([*without_label, "metric"]).any()
    return keys if needs_label else without_label


def _changes(values: Iterable[object]) -> int:
    return sum(one != other for one, other in pairwise(map(str, values)))


def measure_of(row: pd.Series) -> Measure:
    """Return the unit in which a report prints a number."""
    note = "" if is_null(row["note"]) else row["note"]
    match row["unit"], row["metric"]:
        case _, "dtype":
            return Measure(None, 1.0)
        case "s", _:
            return Measure("seconds", 1.0) if "unit s in document" in note else Measure("ms", 1e-3)
        case "B", "tensor_size":
            return Measure("MB of 2²⁰", 2.0**20)
        case "B", _:
            return Measure("GB", 1e9)
        case "1", metric if metric.endswith(_SHARES):
            return Measure("%", 0.01)
        case None | float(), "time":  # a time without a unit (None or NaN): the total of ITERATIONS
            return Measure("seconds of 100", 1.0)
        case unit, _:
            return Measure("1" if is_null(unit) else unit, 1.0)
