"""What the page shows of one result when a reader opens it (drills down to it): every value as text, samples,
environment, and the command that repeats it.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lmsweep.analysis.comparison.compare import ResultKey
from lmsweep.analysis.data.columns import KEY_COLUMNS, is_null, label, natural_ranks
from lmsweep.analysis.data.selection import cells_of, ok_rows, unit_of, values_in
from lmsweep.analysis.tables.number_format import choose_unit, interval_texts
from lmsweep.analysis.tables.pivot import CONDITIONS
from lmsweep.trials.results.flag_meanings import ADVICE_OF
from lmsweep.trials.results.metrics import DERIVED, Unit, metric_of
from lmsweep.trials.spec.config import CONFIG_FIELDS, STORED_FIELDS
from lmsweep.trials.spec.model_sizes import DIMENSIONS, SIZES

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = Mapping[str, Json]

_NO_AXES = (
    *("trial_id", "measurement_id", "environment_id", "attempt_id", "started_at", "host_load", "host_memory"),
    *("host_memory_for_a_trial", "code", "question"),
)
"""Keys that differ between nearly all results, and so make no useful rows or columns."""

AXES: tuple[str, ...] = tuple(name for name in KEY_COLUMNS if name not in _NO_AXES)
"""Keys that can be rows, columns or filters of the page's table."""

_READ_BY_CELLS = [
    *("status", "workload", "phase", "metric", "unit", "median", "low", "high", "processes", "spread", "reason"),
    *("flags", "n", "device_name", *DERIVED),
]

MOST_SAMPLES = 250_000
"""Most samples that a page embeds. Of a larger store, every second, third, ... sample of each result is embedded."""


def drilled(frame: pd.DataFrame) -> JsonObject:
    """Return the results of `lmsweep.load` as the JSON object that the page embeds as `data`.

    A result is a workload of a trial in one environment. `keys` holds, for each of AXES, what `_key` returns; `values`,
    for each `phase.metric`, what `_value` and `_samples` return. Arrays are the base64 encoding of their little-endian
    bytes; words that repeat (flags, reasons) are numbers, by their place in a list.

    frame: with the default index, so that labels of its rows are positions, too.
    """
    results, result_of_row = _results(frame)
    flags, reasons = _Codes(()), _Codes("")
    narrow, sampled = frame[_READ_BY_CELLS], frame[["n", "samples", "warmup_samples"]]
    values, positions_of = {}, narrow.groupby(["phase", "metric"]).indices
    count = int(frame["n"][frame["n"] > 1].sum())
    stride = max(1, ceil(count / MOST_SAMPLES))  # every so many samples, one is embedded
    for name in values_in(frame):
        phase, _, metric = name.rpartition(".")
        stored_metric = DERIVED.get(metric, metric)  # the one that a derived metric is computed from
        rows = narrow.iloc[positions_of.get((phase, stored_metric), [])]
        cells = ok_rows(cells_of(rows, rows, name))
        values[name] = _value(cells, name, result_of_row, flags, reasons)
        if metric not in DERIVED:
            values[name] |= _samples(sampled.loc[cells.index], stride)
    return {
        "results": len(results),
        "keys": {name: _key(results, name) for name in AXES},
        "status": results["status"].to_list(),
        "values": values,
        "flags": list(flags),
        "reasons": list(reasons),
        "advice": ADVICE_OF,
        "stride": stride,
        "derived": dict(DERIVED),
        "trial": _trial(results),
        "conditions": list(CONDITIONS),
    }


def value_text(median: float, low: float, high: float, unit: Unit) -> str:
    """Return `5.12 [5.09, 5.15] ms`."""
    if np.isnan(median):
        return ""
    number, interval = interval_texts(median / unit.size, low / unit.size, high / unit.size)
    return " ".join(filter(None, (number, interval, unit.name)))


def _trial(results: pd.DataFrame) -> JsonObject:
    """What the page needs to write the command that repeats a result.

    `defaults`: the default of each field. `named`: for the label of each model, whether its name alone says its size.
    """
    named = {}
    for model, rows in results.groupby("model", dropna=True):
        size = SIZES.get(str(model))
        named[label(model)] = size is not None and all(
            set(map(label, rows[name].unique())) == {label(getattr(size, name))} for name in DIMENSIONS
        )
    return {
        "defaults": {name: label(CONFIG_FIELDS[name].default) for name in STORED_FIELDS if name in AXES},
        "named": named,
    }


def _samples(rows: pd.DataFrame, stride: int) -> dict[str, Json]:
    """Samples and warm-up samples of each successful result, one after the other, and how many each has; empty if no
    result has several.
    """
    if not (rows["n"] > 1).any():
        return {}
    found: dict[str, Json] = {}
    for column in ("samples", "warmup_samples"):
        name = column.removesuffix("_samples")
        lists = pa.array(rows[column].array)
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
        starts = np.cumsum(lengths) - lengths
        places = np.arange(len(numbers)) - np.repeat(starts, lengths)  # in its list: 0 1, 0 1 2 for lengths 2 and 3
        kept = numbers[places % stride == 0]
        found[name] = b64encode(kept.astype("<f4").tobytes()).decode()
        found[f"{name}_lengths"] = _codes(-(-lengths // stride))
    return found


def result_numbers(frame: pd.DataFrame) -> dict[ResultKey, int]:
    """Return the number of each result on the page."""
    results, _ = _results(frame)
    keys = results[list(ResultKey._fields)].itertuples(index=False, name=None)
    return {ResultKey(*key): number for number, key in enumerate(keys)}


class _Codes(dict[str | tuple[str, ...], int]):
    """Word -> its number on the page. 0 is that of `nothing`: no flags, or no reason."""

    def __init__(self, nothing: str | tuple[str, ...]) -> None:
        super().__init__({nothing: 0})

    def code(self, word: str | tuple[str, ...]) -> int:
        return self.setdefault(word, len(self))


def _results(frame: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return the first row of each result, and the number of the result of each row.

    Rows are of one result if they agree in all that the page can show of it, AXES and the status; nulls are equal.
    """
    codes = pd.DataFrame({name: pd.factorize(frame[name])[0] for name in (*AXES, "status")})
    result_of_row = np.asarray(codes.groupby(list(codes), sort=False).ngroup(), dtype=np.int64)
    first = np.unique(result_of_row, return_index=True)[1]
    return frame.iloc[first].reset_index(drop=True), result_of_row


def _key(results: pd.DataFrame, name: str) -> JsonObject:
    """Return the `labels` of a key's values in natural order, their texts in a `csv` file if these differ, their
    `numbers`, and `codes`, the index of each result's value if there are several."""
    ranks = natural_ranks(results, name)  # 0, 1, ... for the values in their order
    ordered = results[name].iloc[np.unique(ranks, return_index=True)[1]]  # each value once
    labels, in_csv = [label(value) for value in ordered], ["" if is_null(value) else str(value) for value in ordered]
    key: dict[str, Json] = {"labels": labels}
    if in_csv != labels:
        key["csv"] = in_csv
    if len(labels) > 1:
        key["codes"] = _codes(ranks)
    if pd.api.types.is_numeric_dtype(results[name]) and not pd.api.types.is_bool_dtype(results[name]):
        key["numbers"] = [None if pd.isna(value) else float(value) for value in ordered]
    return key


def _value(
    cells: pd.DataFrame, name: str, result_of_row: NDArray[np.int64], flags: _Codes, reasons: _Codes
) -> dict[str, Json]:
    """Return which results have a value (`result`: their numbers), with the printed `text`, `flags` and `reason` of
    each; for statistics of samples also the `unit` and the numbers."""
    stored = unit_of(cells, name) or "1"
    ends = cells[["median", "low", "high"]].to_numpy(float)
    value: dict[str, Json] = {
        "result": _codes(result_of_row[cells.index]),
        "text": [value_text(three[0], three[1], three[2], choose_unit(stored, three[:1])) for three in ends],
    }
    if metric_of(name) not in DERIVED and cells["n"].gt(1).any():
        unit = choose_unit(stored, ends[:, 0])
        value |= {"unit": [unit.name, unit.size]}
        value |= {column: _floats(cells[column]) for column in ("median", "low", "high")}
    if (cells["processes"] > 1).any():
        value |= {column: _floats(cells[column]) for column in ("processes", "spread")}
    for column, words in (("flags", flags), ("reason", reasons)):
        codes = np.array([words.code(word) for word in cells[column]], dtype=np.int64)
        if codes.any():  # 0 stands for no flags, or no reason
            value[column] = _codes(codes)
    return value


def _codes(numbers: NDArray[np.int64]) -> str:
    return b64encode(numbers.astype("<i4").tobytes()).decode()


def _floats(numbers: pd.Series) -> str:
    return b64encode(numbers.to_numpy(dtype="<f8", na_value=np.nan).tobytes()).decode()
