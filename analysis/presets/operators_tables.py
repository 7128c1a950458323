"""Presets of single operators, on host and device, and of single kernels, as profilers list them."""

import pandas as pd

from lmsweep.analysis.data.columns import in_order
from lmsweep.analysis.data.pooled_rows import RESULT
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.kernels import short_name
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import common_conditions, varying_keys

_TIMES = ("self_cpu", "total_cpu", "self_device", "total_device")


def operators(results: Results) -> Listing:
    """PyTorch operators as torch.profiler lists them: times per profiled step, the longest first."""
    rows, keys = _rows(results, "operators")
    per_step = rows[list(_TIMES)].astype(float).div(rows["steps"], axis=0)
    frame = rows[[*keys, "name"]].join(per_step)
    frame.insert(len(keys) + 3, "self_cpu_share", _share(rows, "self_cpu"))
    frame["self_device_share"] = _share(rows, "self_device")
    frame["calls"] = rows["calls"] / rows["steps"]
    frame = frame.dropna(axis="columns", how="all")  # on a CPU there is no device time
    units = dict.fromkeys(_TIMES, "s") | {"self_cpu_share": "share", "self_device_share": "share", "calls": "1"}
    return Listing(
        title="Operators of a profiled step",
        frame=frame,
        keys=[*keys, "name"],
        units={name: unit for name, unit in units.items() if name in frame},
        conditions=common_conditions(rows, keys),
        notes=[
            "self: time excluding the operators called inside; all numbers are per step; profiling slows down the host",
        ],
    )


def every_kernel(results: Results) -> Listing:
    """Every kernel in every range, as `nsys stats` lists them, the longest first."""
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
            "total, instances: all profiled steps together; mean to stdev: single launches",
            "kernel names are shortened; the store's table `kernels` has them in full",
        ],
    )


def _rows(results: Results, table: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows in the natural order of their trials; within each trial in stored order, the longest first."""
    rows = results.details(table, "profile")
    keys = varying_keys(rows.drop_duplicates(RESULT), ["model", "context_length"], [])
    return in_order(rows, keys), keys


def _share(rows: pd.DataFrame, name: str) -> pd.Series:
    whole = rows.groupby(RESULT)[name].transform("sum")
    return rows[name].astype(float) / whole.astype(float)
