"""What PyTorch's operators take, on the host and on the device, and every kernel, as profilers print them."""

import pandas as pd

from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.kernels import short_name
from lmsweep.analysis.presets.layout import in_order
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys

_TIMES = ("self_cpu", "total_cpu", "self_device", "total_device")


def operators(results: Results) -> Listing:
    """The table of torch.profiler: per profiled step, the longest first."""
    rows, keys = _rows(results, "operators")
    per_step = rows[list(_TIMES)].astype(float).div(rows["steps"], axis=0)
    frame = rows[[*keys, "name"]].join(per_step)
    frame.insert(len(keys) + 3, "self_cpu_share", _share(rows, "self_cpu"))
    frame["self_device_share"] = _share(rows, "self_device")
    frame["calls"] = rows["calls"] / rows["steps"]
    frame = frame.dropna(axis="columns", how="all")  # a CPU has no time of a device besides its own
    units = dict.fromkeys(_TIMES, "s") | {"self_cpu_share": "share", "self_device_share": "share", "calls": "1"}
    return Listing(
        title="Operators of a profiled step",
        frame=frame,
        keys=[*keys, "name"],
        units={name: unit for name, unit in units.items() if name in frame},
        conditions=common_conditions(rows, keys),
        notes=["self: without the operators inside; all per step; a profiled host is slower than one that is not"],
    )


def every_kernel(results: Results) -> Listing:
    """Every kernel in every range, as `nsys stats` prints them, the longest first."""
    rows, keys = _rows(results, "kernels")
    rows = rows.assign(range=rows["range"].fillna("unattributed"), kernel=rows["kernel"].map(short_name))
    numbers = {"share": "share", "total": "s", "instances": "1"} | dict.fromkeys(
        ("mean", "median", "min", "max", "stdev"), "s"
    )
    frame = rows[[*keys, "range", "kernel", *numbers, "grid", "block"]]
    return Listing(
        title="Kernels of the profiled steps by range",
        frame=frame.astype(dict.fromkeys(numbers, float)),
        keys=[*keys, "range", "kernel"],
        units=numbers,
        conditions=common_conditions(rows, keys),
        notes=[
            "total, instances: of all profiled steps; mean to stdev: of single calls",
            "names are shortened; the table kernels of the store has them in full",
        ],
    )


def _rows(results: Results, table: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows in natural order of their trials, and in stored order, the longest first, within each."""
    rows = results.details(table, "profile")
    keys = varying_keys(rows.drop_duplicates(["measurement_id", "environment_id"]), ["model", "context_length"], [])
    return in_order(rows, keys), keys


def _share(rows: pd.DataFrame, name: str) -> pd.Series:
    whole = rows.groupby(["measurement_id", "environment_id"])[name].transform("sum")
    return rows[name].astype(float) / whole.astype(float)
