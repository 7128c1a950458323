"""How much each row varies between processes: the shipped prior, updated with the store's own repetitions."""

from collections.abc import Mapping
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.analysis.data.selection import flag_tuples
from lmsweep.trials.results.metrics import METRICS
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.statistics.variation import BUSY, PRIORS, WAITS, Floats, Kind, Variation

Known = Mapping[tuple[str, Kind], Variation]
"""(device_name, kind) -> its variation, where cells were repeated."""

KIND = "variation_kind"
"""The column of `lmsweep.load` that holds the `Kind` of each row."""

SETUP = frozenset(name for name in METRICS if name.endswith(("_time", "_gap"))) - {
    "device_time", "kernel_time", "enqueue_time", "busy_time", "local_step_time", "exposed_time", "overlap_time",
    "token_time", "mean_time", "p99_time",
}  # fmt: skip
"""Metrics of what happens once in a process, such as compilation. The metrics subtracted here recur in each step."""
DEVICE_METRICS = ("device_time", "kernel_time")
HOST_METRICS = ("enqueue_time", "latency")
WHOLE_STEPS = ("step", "local_step")

VALUE = ["measurement_id", "environment_id", "phase", "metric"]
"""Columns that identify a value of a result; each process that measured it has a row."""
PROCESS_PHASE = ["attempt_id", "workload", "phase"]
"""Columns that identify a phase of a process."""


def kinds(rows: pd.DataFrame) -> NDArray[np.str_]:
    """Return the `Kind` of variation of each row; `lmsweep.trials.statistics.variation` defines the kinds.

    rows: of whole attempts, because the kind of a time follows from the clock, the device time and the flags of its
    phase; the columns PROCESS_PHASE, metric, unit, median, device, world_size and flags.
    """
    metric = rows["metric"].astype(object).to_numpy()
    number_of_phase = rows.groupby(PROCESS_PHASE, sort=False, dropna=False).ngroup().to_numpy()
    flags = flag_tuples(rows["flags"]).to_list()

    def is_flagged(*wanted: Flag) -> NDArray[np.bool_]:
        """Return for each row whether any row of its phase has one of these flags."""
        rows_with = pd.Series([not set(wanted).isdisjoint(words) for words in flags], dtype=bool)
        return rows_with.groupby(number_of_phase).transform("any").to_numpy(bool)

    def median_of(name: str) -> Floats:
        """Return for each row the median of this metric in its phase, NaN without: a phase has each metric once."""
        medians = pd.Series(np.where(metric == name, rows["median"].to_numpy(float), np.nan))
        return medians.groupby(number_of_phase).transform("last").to_numpy(float)

    with np.errstate(divide="ignore", invalid="ignore"):
        busy = median_of("device_time") / median_of("time")  # share of the time for which the device was busy
    # Without a device time, only the flags say whether the GPU waits for the host.
    waits = np.where(np.isnan(busy), is_flagged(Flag.HOST_BOUND, Flag.BUSY_HOST), busy < WAITS)
    of_step, gpu_time = rows["phase"].isin(WHOLE_STEPS).to_numpy(), np.isin(metric, DEVICE_METRICS)
    cpu, limited = (rows["device"] == "cpu").to_numpy(bool), is_flagged(Flag.POWER_CAPPED, Flag.THROTTLED)
    rules: list[tuple[NDArray[np.bool_], Kind]] = [  # the first that holds counts
        (np.isin(metric, ["resident", "peak_resident"]), "resident"),  # in bytes; all others in bytes are exact
        (~rows["unit"].isin(["s", "J"]).to_numpy(bool), "exact"),
        (np.isin(metric, [*SETUP]), "setup"),  # on CPUs, too
        (cpu & is_flagged(Flag.BUSY_HOST, Flag.UNSTEADY), "cpu_busy"),
        (cpu, "cpu"),
        (gpu_time & rows["world_size"].gt(1).to_numpy(bool, na_value=False), "ranks"),  # capped or not
        (gpu_time & of_step & limited, "device_capped"),
        (gpu_time & of_step, "device"),
        (gpu_time & limited, "phase_capped"),  # of a part of a step, or of anything else
        (gpu_time, "phase"),
        (waits | np.isin(metric, HOST_METRICS), "host"),
        (busy > BUSY, "wall"),
    ]
    return np.select([holds for holds, _ in rules], [kind for _, kind in rules], "wall_waits")  # WAITS <= busy <= BUSY


def known_variation(*frames: pd.DataFrame) -> Known:
    """Return the variation of each device and kind by repeated cells, from rows of `load(..., pooled=False)`."""
    sums: dict[tuple[str, Kind], list[float]] = {}  # of squared distances, and of degrees of freedom
    for frame in frames:
        is_repeatable = frame["median"].gt(0) & frame[KIND].ne("exact")
        rows = frame.loc[is_repeatable, [*VALUE, "device_name", KIND, "median"]]
        rows = rows.assign(log=np.log(rows["median"].to_numpy(float)))
        repeated = rows[rows.duplicated(VALUE, keep=False)]
        groups = repeated.groupby([*VALUE, "device_name", KIND], sort=False)["log"].agg(["var", "size"])
        groups = groups[groups["size"] > 1].reset_index()
        for key, cells in groups.groupby(["device_name", KIND]):
            freedom = cells["size"] - 1
            total = sums.setdefault(cast(tuple[str, Kind], key), [0.0, 0.0])
            total[0] += float((cells["var"] * freedom).sum())
            total[1] += float(freedom.sum())
    return {key: PRIORS[key[1]].updated(*total) for key, total in sums.items()}


def variation_of(rows: pd.DataFrame, known: Known) -> tuple[Floats, Floats]:
    """Return `scale` and `freedom` of the `Variation` of each row."""
    each = [
        known.get((device, kind)) or PRIORS[kind] for device, kind in zip(rows["device_name"], rows[KIND], strict=True)
    ]
    return np.array([one.scale for one in each]), np.array([one.freedom for one in each])
