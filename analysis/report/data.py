"""What the page's script pivots and draws: every value of every result, in columns that are small when embedded."""

from base64 import b64encode
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, KEY_COLUMNS, label, natural_ranks
from lmsweep.analysis.data.load import SPEED_UNITS
from lmsweep.analysis.data.selection import cells_of, unit_of, values_in
from lmsweep.analysis.tables.number_format import UNITS
from lmsweep.analysis.tables.pivot import CONDITIONS, DIMENSIONS, FOLLOWS, PROTOCOL, USUAL, default_layout
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.spec.workloads import workloads

_NO_AXES = (
    "trial_id",
    "measurement_id",
    "environment_id",
    "attempt_id",
    "started_at",
    "host_load",
    "host_memory",
    "host_memory_for_a_trial",
)
"""Keys that nearly every result has a value of its own of: there is nothing to lay out along them."""

AXES: tuple[str, ...] = tuple(name for name in KEY_COLUMNS if name not in _NO_AXES)
"""Keys that can be rows, columns or filters of the page's table."""

_READ_BY_CELLS = [
    "status",
    "workload",
    "phase",
    "metric",
    "unit",
    "median",
    "low",
    "high",
    "processes",
    "spread",
    "reason",
    "flags",
]
_READ_BY_CELLS += [*SPEED_UNITS, "energy_per_token"]


def page_data(frame: pd.DataFrame) -> dict[str, Any]:
    """The results of `lmsweep.load` as JSON can hold them; what `report.js` reads as `data`.

    A result is a workload of a trial in one environment. `keys` are AXES: the labels of each key's values in natural
    order, as a table and as CSV has them, and which of them each result has. `values` are the phases and metrics: which
    results have them, and median, low and high in SI units. Arrays of numbers are base64 of their bytes.
    """
    results, result_of_row = _results(frame)
    flags, reasons = _Words(), _Words()
    flags.code(())
    reasons.code("")
    narrow = frame[_READ_BY_CELLS]
    rows, cols, shown = default_layout(frame)
    known = values_in(frame) or shown  # where everything failed, what failed is shown all the same
    values = {name: _value(narrow, name, result_of_row, flags, reasons) for name in known}
    return {
        "results": len(results),
        "keys": {name: _key(results, name) for name in AXES},
        "status": _codes(results["status"].map([status.value for status in Status].index).to_numpy()),
        "statuses": [status.value for status in Status],
        "values": values,
        "flags": list(flags),
        "reasons": list(reasons),
        "advice": {flag.value: flag.advice for flag in Flag},
        "layout": {"rows": rows, "cols": cols, "values": shown},
        "distinguishing": list(DISTINGUISHING_COLUMNS),
        "conditions": list(CONDITIONS),
        "dimensions": list(DIMENSIONS),
        "follows": FOLLOWS,
        "units": {stored: [[unit.name, unit.size] for unit in units] for stored, units in UNITS.items()},
        "usual": USUAL,
        "protocol": list(PROTOCOL),
        "protocol_of": {name: list(workload.protocol) for name, workload in workloads().items()},
    }


class _Words(dict[Any, int]):
    """Different words, or tuples of them, in the order in which they were met, and the number of each."""

    def code(self, word: Any) -> int:
        return self.setdefault(word, len(self))


def _results(frame: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """One row per result, and for each row of the frame the number of its result."""
    codes = pd.DataFrame({name: pd.factorize(frame[name])[0] for name in (*AXES, "status")})
    result_of_row = np.asarray(codes.groupby(list(codes), sort=False).ngroup(), dtype=np.int64)
    first = np.unique(result_of_row, return_index=True)[1]
    return frame.iloc[first].reset_index(drop=True), result_of_row


def _key(results: pd.DataFrame, name: str) -> dict[str, Any]:
    ranks = natural_ranks(results, name)
    ordered = results[name].iloc[np.unique(ranks, return_index=True)[1]]
    labels, in_csv = [label(value) for value in ordered], [_csv_text(value) for value in ordered]
    key: dict[str, Any] = {"labels": labels}
    if in_csv != labels:
        key["csv"] = in_csv
    if len(labels) > 1:
        key["codes"] = _codes(ranks)
    if pd.api.types.is_numeric_dtype(results[name]) and not pd.api.types.is_bool_dtype(results[name]):
        key["numbers"] = [None if pd.isna(value) else float(value) for value in ordered]
    return key


def _csv_text(value: Any) -> str:
    """As pandas writes it."""
    return "" if pd.isna(value) else str(value)


def _value(
    frame: pd.DataFrame, name: str, result_of_row: NDArray[np.int64], flags: _Words, reasons: _Words
) -> dict[str, Any]:
    cells = cells_of(frame, frame, name)
    workloads = sorted(cells["workload"].unique())
    cells = cells[cells["status"] == Status.OK]
    value: dict[str, Any] = {
        "unit": unit_of(cells, name),
        "speed": name.partition(".")[2] in SPEED_UNITS,
        "workloads": workloads,
        "result": _codes(result_of_row[cells.index]),
        "median": _floats(cells["median"]),
    }
    for end in ("low", "high"):
        if cells[end].notna().any():
            value[end] = _floats(cells[end])
    if (cells["processes"] > 1).any():
        value |= {name: _floats(cells[name]) for name in ("processes", "spread")}
    for column, words in (("flags", flags), ("reason", reasons)):
        codes = np.array([words.code(word) for word in cells[column]], dtype=np.int64)
        if codes.any():
            value[column] = _codes(codes)
    return value


def _codes(numbers: NDArray[np.int64]) -> str:
    return b64encode(numbers.astype("<i4").tobytes()).decode()


def _floats(numbers: pd.Series) -> str:
    return b64encode(numbers.to_numpy(dtype="<f8", na_value=np.nan).tobytes()).decode()
