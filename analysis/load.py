"""From a store to a table of results: every stored row, and what follows from it."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.stats import describe
from trials.devices import find_device
from trials.formulas import PASSES, forward_flops
from trials.spec import RequestError, Status
from trials.store import Store

WORK_IN_FORWARD_PASSES = {"forward": 1, "backward": 2}
"""Work of a phase; that of a whole step depends on the mode (`PASSES`), and the optimizer's is not counted."""


def load(store: str | Store, *, newest: bool = True) -> pd.DataFrame:
    """Every row of the store's measurements under the names of `trials.record.Record`, and derived columns.

    `n`, `median`, `low`, `high`, `mean`, `std`, `min`, `max`: of `samples`, in the row's unit (see `analysis.stats`;
    low..high is the 95 % interval of the median). For the metric `time` of the phases forward, backward and step of a
    whole model: `tokens_per_second`; `flops`, the FLOPs of one iteration's phase, matrix products only; `tflops`, in
    TFLOP/s; `mfu`, the share of the datasheet's peak, NaN for a device or arithmetic whose peak is not known. These
    four are at the median.

    newest: keep one attempt of each measurement in each environment, the newest that is ok, or if none is, the newest.

    Lists stay in Arrow (a cell of `samples` reads as a list); integers are nullable. Files that cannot be read are
    left out with a warning each. Raises RequestError where there is no store or a newer lmsweep wrote it.
    """
    store = Store(store) if isinstance(store, str) else store
    if not store.exists():
        raise RequestError(f"there is no store at {store.location}; `lmsweep run` makes one")
    table, damage = store.read()
    for item in damage:
        warnings.warn(
            f"{item.path} in the store {store.location} cannot be read and its results are left out ({item.error}). "
            "The next `lmsweep run` into this store sets it aside and measures its trials again; or delete it.",
            stacklevel=2,
        )
    frame = table.to_pandas(types_mapper=_column_type)
    lengths = pc.fill_null(pc.list_value_length(table["samples"]), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    values = pc.list_flatten(table["samples"]).to_numpy()
    frame = pd.concat([frame, describe(values, offsets)], axis=1)
    frame = _with_speed(frame)
    return newest_rows(frame) if newest else frame


def newest_rows(frame: pd.DataFrame, *, prefer_ok: bool = True) -> pd.DataFrame:
    """The rows of one attempt of each measurement in each environment: the newest that is ok, else the newest.

    prefer_ok: False for the newest attempt however it ended.
    """
    result = ["measurement_id", "environment_id"]
    attempts = frame[[*result, "attempt_id", "started_at"]].assign(ok=(frame["status"] == Status.OK) & prefer_ok)
    attempts = attempts.drop_duplicates([*result, "attempt_id"])
    kept = attempts.sort_values(["ok", "started_at", "attempt_id"]).drop_duplicates(result, keep="last")
    if len(kept) == len(attempts):
        return frame
    key = [*result, "attempt_id"]
    chosen = pd.MultiIndex.from_frame(frame[key]).isin(pd.MultiIndex.from_frame(kept[key]))
    return frame[chosen].reset_index(drop=True)


def _column_type(column: pa.DataType) -> pd.api.extensions.ExtensionDtype | None:
    if pa.types.is_list(column):
        return pd.ArrowDtype(column)
    return pd.Int64Dtype() if pa.types.is_integer(column) else None


def _with_speed(frame: pd.DataFrame) -> pd.DataFrame:
    whole_step = frame["mode"].map(PASSES).where(frame["phase"] == "step")
    passes = frame["phase"].map(WORK_IN_FORWARD_PASSES).fillna(whole_step).where(frame["metric"] == "time")
    size = {
        name: frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        for name in ("d_model", "d_ff", "num_layers", "vocab_size", "context_length", "batch_size")
    }
    flops = forward_flops(**size) * passes.to_numpy(dtype=np.float64, na_value=np.nan)
    tokens = np.where(np.isnan(flops), np.nan, size["context_length"] * size["batch_size"])
    seconds = frame["median"].to_numpy()
    flops_per_second = flops / seconds
    return frame.assign(
        tokens_per_second=tokens / seconds,
        flops=flops,
        tflops=flops_per_second / 1e12,
        mfu=flops_per_second / _peak_flops(frame),
    )
