"""From a store to a table of results: every stored row, and what follows from it."""

import shlex
import warnings
from collections.abc import Collection

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lmsweep.analysis.data.processes import as_lists, pool
from lmsweep.analysis.data.sample_stats import describe
from lmsweep.trials.analytic.datasheets import find_device, peak_flops
from lmsweep.trials.analytic.formulas import PASSES, PHASE_PASSES, attention_flops, forward_flops, tokens_per_step
from lmsweep.trials.results.environment import is_absent
from lmsweep.trials.spec.config import AUTO_FIELDS, CONFIG_FIELDS, Precision, RequestError
from lmsweep.trials.store.store import Store

SPEED_UNITS = {"tokens_per_second": "tokens/s", "tflops": "TFLOP/s", "mfu": "share"}
"""Derived columns that say how fast a phase was, and their units; a share is of 1."""

DERIVED_FROM = dict.fromkeys(SPEED_UNITS, "time") | {"energy_per_token": "energy"}
"""Derived columns, and the stored metric of the rows that have them."""

# The precision whose peak a product is held against: by its type, and for float32 by how float32 was computed.
_PRECISION_OF_TYPE: dict[str | None, Precision] = {"bfloat16": "bf16", "float16": "fp16"}
_PRECISION_OF_FLOAT32: dict[str | None, Precision] = {"ieee": "fp32", "tf32": "tf32", "bf16": "bf16"}

_DEFAULTS = {name: f.default for name, f in CONFIG_FIELDS.items() if f.default is not None and name not in AUTO_FIELDS}
"""What a null means in a row that was stored before the field existed: identifiers leave out what is at its default."""


def load(store: str | Store, *, pooled: bool = True) -> pd.DataFrame:
    """Every value of the store's measurements under the names of `lmsweep.trials.results.record.Record`, and derived
    columns.

    `n`, `median`, `low`, `high`, `mean`, `std`, `min`, `max`, `outliers`: of `samples`, in the row's unit (see
    `lmsweep.analysis.data.sample_stats`; low..high is the 95 % interval of the median). For the metric `time` of the
    phases forward, backward and step of a whole model, and of forward and backward of attention alone:
    `tokens_per_second`; `flops`, the FLOPs of one iteration's phase, matrix products only, over all s² scores also
    where attention is causal; `tflops`, in TFLOP/s; `mfu`, the share of the datasheet's peak, NaN for a device or
    arithmetic whose peak is not known. For the metric `energy`: `energy_per_token`, in joules. These five are at the
    median.

    pooled: the processes that measured the same are one row (`lmsweep.analysis.data.processes.pool`); `processes` says
    how many there are, `spread` how far apart their medians lie, as a share, `process_lengths` how many of `samples`
    are whose. False keeps every attempt's own rows, those of superseded failures too.

    Lists stay in Arrow (a cell of `samples` reads as a list); integers are nullable; the columns of AUTO_FIELDS hold
    numbers and the word auto. Files that cannot be read are
    left out with a warning each. Raises RequestError where there is no store or a newer lmsweep wrote it.
    """
    store = Store(store) if isinstance(store, str) else store
    if not store.exists():
        there = store.location
        raise RequestError(
            f"there is no store at {there}; make one with: lmsweep run quick --store {shlex.quote(there)}"
        )
    table, damage = store.read()
    for item in damage:
        warnings.warn(
            f"{item.path} in the store {store.location} cannot be read and its results are left out ({item.error}). "
            "The next `lmsweep run` into this store sets it aside and measures its trials again; or delete it.",
            stacklevel=2,
        )
    frame = table.to_pandas(types_mapper=_column_type)
    for name, default in _DEFAULTS.items():
        frame[name] = frame[name].fillna(default)
    for name in AUTO_FIELDS:
        frame[name] = frame[name].astype(object).where(frame[name].notna(), "auto")
    lengths = pc.fill_null(pc.list_value_length(table["samples"]), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    values = pc.list_flatten(table["samples"]).to_numpy()
    frame = pd.concat([frame, describe(values, offsets)], axis=1)
    frame = frame.assign(processes=(frame["n"] > 0).astype(np.int64), spread=np.nan, process_lengths=as_lists(lengths))
    return _with_speed(pool(frame) if pooled else frame)


def of_present_devices(frame: pd.DataFrame, where: Collection[str] = ()) -> pd.DataFrame:
    """The rows without those of trials that asked for a device that was not there: they would fill tables with
    `unsupported`. A warning says how many; all are kept where `where`, the names of conditions, has the device's.

    Raises RequestError where nothing else is there.
    """
    absent = frame["device_name"].map(is_absent).to_numpy(dtype=bool)
    if "device_name" in where or not absent.any():
        return frame
    left_out = frame[absent].drop_duplicates(["measurement_id", "environment_id"])
    names = ", ".join(left_out["device_name"].unique())
    words = f"{len(left_out)} results are of a device that was not there ({names})"
    if absent.all():
        raise RequestError(f"{words}, and there are no others: `lmsweep doctor` says what can run here")
    warnings.warn(f"{words}; they are left out. `lmsweep status` counts them.", stacklevel=2)
    return frame[~absent].reset_index(drop=True)


def _column_type(column: pa.DataType) -> pd.api.extensions.ExtensionDtype | None:
    if pa.types.is_list(column):
        return pd.ArrowDtype(column)
    return pd.Int64Dtype() if pa.types.is_integer(column) else None


def _with_speed(frame: pd.DataFrame) -> pd.DataFrame:
    whole_step = frame["mode"].map(PASSES).where(frame["phase"] == "step")
    timed, alone = frame["metric"] == "time", frame["workload"] == "attention"
    counted = timed & (alone | (frame["workload"] == "timing"))
    passes = frame["phase"].map(PHASE_PASSES).fillna(whole_step).where(counted).to_numpy(dtype=np.float64)
    batch = {name: _numbers(frame[name]) for name in ("context_length", "batch_size")}
    size = {name: _numbers(frame[name]) for name in ("d_model", "d_ff", "num_layers", "vocab_size")}
    once = attention_flops(phase="forward", d_model=size["d_model"], **batch)
    flops = passes * np.where(alone, once, forward_flops(**size, **batch))
    tokens = np.where(np.isnan(flops), np.nan, tokens_per_step(**batch))
    seconds_or_joules = frame["median"].to_numpy()
    flops_per_second = flops / seconds_or_joules
    return frame.assign(
        tokens_per_second=tokens / seconds_or_joules,
        flops=flops,
        tflops=flops_per_second / 1e12,
        mfu=flops_per_second / _peaks(frame),
        energy_per_token=np.where(frame["metric"] == "energy", seconds_or_joules / tokens_per_step(**batch), np.nan),
    )


def _peaks(frame: pd.DataFrame) -> NDArray[np.float64]:
    """Peak FLOP/s of each row's device in the arithmetic that was in force; NaN where either is not known."""
    evidence = ["device_name", "device_memory", "float32_matmul", "autocast_dtype", "parameter_dtype"]
    kind_of_row = frame.groupby(evidence, dropna=False, sort=False).ngroup().to_numpy()
    kinds = frame[evidence].iloc[np.unique(kind_of_row, return_index=True)[1]].astype(object)
    peaks = [_peak(*kind) for kind in kinds.where(kinds.notna(), None).to_numpy()]
    return np.array(peaks, dtype=np.float64)[kind_of_row]


def _peak(
    device_name: str, memory: int | None, float32_matmul: str | None, autocast: str | None, parameters: str | None
) -> float:
    device = find_device(device_name, memory)
    precision = _PRECISION_OF_TYPE.get(autocast or parameters) or _PRECISION_OF_FLOAT32.get(float32_matmul)
    peak = peak_flops(device, precision) if device and precision else None
    return np.nan if peak is None else peak


def _numbers(column: pd.Series) -> NDArray[np.float64]:
    return column.to_numpy(dtype=np.float64, na_value=np.nan)
