"""What is known of the variation between processes for each row: the shipped prior, and the store's own repetitions."""

from collections.abc import Mapping
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.trials.results.metrics import METRICS
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.statistics.variation import PRIORS, Floats, Kind, Variation

Known = Mapping[tuple[str, Kind], Variation]
"""(device_name, kind) -> its variation, where cells were repeated."""

SETUP = frozenset(name for name in METRICS if name.endswith(("_time", "_gap"))) - {
    "device_time", "kernel_time", "enqueue_time", "busy_time", "local_step_time", "exposed_time", "overlap_time",
}  # fmt: skip
"""Metrics of what happens once in a process, such as compilation. The metrics subtracted here recur in each step."""
DEVICE_METRICS = ("device_time", "kernel_time")
HOST_METRICS = ("enqueue_time", "latency")
HOST_FLAGS = frozenset({Flag.HOST_BOUND, Flag.BUSY_HOST})
"""Flags of a time that the host limits."""

VALUE = ["measurement_id", "environment_id", "phase", "metric"]
"""Columns that identify a value of a result; each process that measured it has a row."""


def kinds(rows: pd.DataFrame) -> NDArray[np.str_]:
    """Return the `Kind` of variation of each row: the first in this order that applies. A recurring time on a CPU is
    always `cpu`. rows: the columns unit, metric, device and flags of `lmsweep.load`."""
    timed = rows["unit"].isin(["s", "J"]).to_numpy(bool)
    metric = rows["metric"].astype(object)
    host = np.array([not HOST_FLAGS.isdisjoint(words) if _is_list(words) else False for words in rows["flags"]], bool)
    return np.select(
        [
            metric.isin(["resident", "peak_resident"]).to_numpy(bool),
            ~timed,
            metric.isin(SETUP).to_numpy(bool),
            (rows["device"] == "cpu").to_numpy(bool),
            metric.isin(DEVICE_METRICS).to_numpy(bool),
            host | metric.isin(HOST_METRICS).to_numpy(bool),
        ],
        ["resident", "exact", "setup", "cpu", "device", "host"],
        "wall",
    )


def known_variation(*frames: pd.DataFrame) -> Known:
    """Return the variation of each device and kind by repeated cells, from rows of `load(..., pooled=False)`."""
    found: dict[tuple[str, Kind], list[float]] = {}
    for frame in frames:
        rows = frame[frame["median"].gt(0)]
        rows = rows.assign(kind=kinds(rows), log=np.log(rows["median"].to_numpy(float)))
        rows = rows[rows["kind"] != "exact"]
        repeated = rows[rows.duplicated(VALUE, keep=False)]
        groups = repeated.groupby([*VALUE, "device_name", "kind"], sort=False)["log"].agg(["var", "size"])
        groups = groups[groups["size"] > 1].reset_index()
        for key, cells in groups.groupby(["device_name", "kind"]):
            freedom = cells["size"] - 1
            total = found.setdefault(cast(tuple[str, Kind], key), [0.0, 0.0])
            total[0] += float((cells["var"] * freedom).sum())
            total[1] += float(freedom.sum())
    return {key: PRIORS[key[1]].updated(*total) for key, total in found.items()}


def variation_of(rows: pd.DataFrame, known: Known) -> tuple[Floats, Floats]:
    """Return `scale` and `freedom` of the `Variation` of each row."""
    of_kind = kinds(rows)
    each = [
        known.get((device, kind)) or PRIORS[kind] for device, kind in zip(rows["device_name"], of_kind, strict=True)
    ]
    return np.array([one.scale for one in each]), np.array([one.freedom for one in each])


def _is_list(words: object) -> bool:
    return words is not None and words is not pd.NA and not isinstance(words, float)
