"""What the workload `memory` found: peaks by context, what they are made of, and the largest allocations."""

import pandas as pd

from analysis.keys import label
from analysis.load import newest_rows
from trials.spec import CONFIG_FIELDS, RequestError, Status
from trials.store import Store

CATEGORIES = ("weights", "gradients", "optimizer_state", "activations", "inputs", "other", "rounding")
"""What a peak is made of; rounding is what CUDA's allocator adds by handing out whole blocks."""

_PEAKS = ("peak_allocated", "peak_tensors", "peak_resident")
"""What is known of a step's peak, the best first: CUDA's allocator, the tensors of other devices, the process."""

_NOT_SAID = ("d_ff", "num_layers", "num_heads", "timeout_seconds", "device")


def memory_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Peaks of memory by context, as the reports print them; of the results of `analysis.load`.

    One row for each model, context length and whatever else differs; columns these keys and `device_name`, then
    `metric` (peak_allocated of CUDA's allocator; elsewhere peak_tensors, or peak_resident where that is all that is
    known) and one for each mode that was measured: forward, train_forward, forward_backward, train_step, in bytes; a
    trial that did not end ok shows its status.

    Raises RequestError where there are no results of the workload memory.
    """
    chosen = _of_memory(frame)
    failed = chosen[chosen["status"] != Status.OK].assign(cell=lambda rows: rows["status"], metric=None)
    peaks = chosen[(chosen["phase"] == "step") & chosen["metric"].isin(_PEAKS) & chosen["median"].notna()]
    peaks = peaks.assign(cell=peaks["max"].astype("int64"), rank=peaks["metric"].map(_PEAKS.index))
    peaks = peaks.sort_values("rank", kind="stable").drop_duplicates(["measurement_id", "environment_id"])
    both = pd.concat([peaks, failed])
    keys = [name for name in varying(both) if name != "mode"]
    modes = [
        mode for mode in ("forward", "train_forward", "forward_backward", "train_step") if mode in set(both["mode"])
    ]
    wide = both.set_index([*keys, "mode"])["cell"].unstack("mode")
    metric = peaks.groupby(keys, dropna=False)["metric"].first().reindex(wide.index)
    return wide[modes].assign(metric=metric)[["metric", *modes]].rename_axis(columns=None).reset_index()


def breakdown_table(frame: pd.DataFrame, *, at: str = "peak") -> pd.DataFrame:
    """What is held at the peak of a step, or `before_backward`, in bytes: keys as of `memory_table`, one column for
    each category and `total`, their sum; null where it could not be known.

    frame: of `analysis.load`. Raises RequestError where there are no results.
    """
    chosen = _of_memory(frame)
    chosen = chosen[(chosen["phase"] == at) & chosen["metric"].isin(CATEGORIES)]
    if chosen.empty:
        raise _nothing()
    keys = varying(chosen)
    wide = chosen.set_index([*keys, "metric"])["median"].unstack("metric").astype("Int64")
    wide = wide[[name for name in CATEGORIES if name in wide]]
    total = wide.drop(columns="rounding", errors="ignore").sum(axis=1, skipna=False)
    rounding = wide["rounding"].fillna(0) if "rounding" in wide else 0
    return wide.assign(total=total + rounding).rename_axis(columns=None).reset_index()


def load_allocations(store: str | Store) -> pd.DataFrame:
    """The newest rows of the store's table `allocations` for each measurement in each environment.

    Raises RequestError where there are none.
    """
    return stored(store, "allocations")


def largest_allocations(allocations: pd.DataFrame, trial: str | None = None, *, most: int = 20) -> pd.DataFrame:
    """The largest pieces of memory of one trial: columns rank, bytes (of one piece), count, at_peak (how many of them
    were held when most was), category, phase, line, function, operator and reason (why there is no line).

    allocations: of `load_allocations`; trial: as for `analysis.timeline.memory_timeline`, and the same errors.
    """
    columns = ["rank", "bytes", "count", "at_peak", "category", "phase", "line", "function", "operator", "reason"]
    return pick(allocations, trial).sort_values("rank")[columns].head(most).reset_index(drop=True)


def stored(store: str | Store, table: str) -> pd.DataFrame:
    """The newest rows of a table beside `measurements`, for each measurement in each environment.

    Raises RequestError where there are none.
    """
    store = Store(store) if isinstance(store, str) else store
    frame = store.read(table)[0].to_pandas()
    if frame.empty:
        raise _nothing()
    # Only what ended ok leaves any.
    return newest_rows(frame.assign(status=Status.OK)).drop(columns="status")


def pick(rows: pd.DataFrame, trial: str | None) -> pd.DataFrame:
    """The rows of one measurement in one environment, by the beginning of its measurement_id or of its trial_id.

    Raises RequestError where there is none, or more than one.
    """
    if trial is not None:
        rows = rows[rows["measurement_id"].str.startswith(trial) | rows["trial_id"].str.startswith(trial)]
    one = rows[["measurement_id", "environment_id"]].drop_duplicates()
    if len(one) == 1:
        return rows
    if rows.empty:
        raise RequestError(f"no measurement of memory begins with {trial!r}")
    first = rows.drop_duplicates(["measurement_id", "environment_id"])
    names = varying(first)
    lines = [
        f"  {row.measurement_id}  " + ", ".join(label(getattr(row, name)) for name in names)
        for row in first.itertuples()
    ]
    raise RequestError(
        f"{len(one)} measurements of memory{f' begin with {trial!r}' if trial else ''}; name one by its id:\n"
        + "\n".join([f"  {'':16}  {', '.join(names)}", *lines])
    )


def varying(rows: pd.DataFrame) -> list[str]:
    """Model and context length, and the other fields by which these rows differ."""
    candidates = [name for name in CONFIG_FIELDS if name not in _NOT_SAID]
    candidates = [*candidates, "device_name", "environment_id"]
    usual = ["model" if rows["model"].notna().any() else "d_model", "context_length"]
    if rows["model"].notna().all():
        candidates.remove("d_model")
    names = usual + [name for name in candidates if name not in usual and rows[name].nunique(dropna=False) > 1]
    if "device_name" in names and "environment_id" in names:
        told = rows.groupby("device_name")["environment_id"].nunique().max() > 1
        names = names if told else [name for name in names if name != "environment_id"]
    return names


def _of_memory(frame: pd.DataFrame) -> pd.DataFrame:
    chosen = frame[frame["workload"] == "memory"]
    if chosen.empty:
        raise _nothing()
    return chosen


def _nothing() -> RequestError:
    return RequestError("the store has no results of the workload memory; `lmsweep run memory` makes some")
