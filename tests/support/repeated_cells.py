"""The cells of the shipped stores that several processes measured: how far the processes differ, how often the interval
of one holds another, and how far the traced steps of one differ."""

from functools import cache

import numpy as np
import pandas as pd

from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.pooled_rows import statistics_of
from lmsweep.analysis.data.process_variation import KIND, VALUE, variation_of
from lmsweep.analysis.reference import stores
from lmsweep.trials.statistics.pooling import pool_statistics
from lmsweep.trials.statistics.sample_stats import STATISTICS


def repeated() -> pd.DataFrame:
    """Return a row for each cell: its kind, the number of processes less one, the variance of the logarithms of their
    medians, the pairs of a process and the next one, and in how many of them both agree within their own intervals.

    An interval is that of its process alone, with the shipped prior, so the store's other processes do not help.
    """
    cells = []
    for name in stores():
        rows = _processes(name)
        rows = rows[rows["median"].gt(0) & rows["unit"].isin(["s", "J"])]
        rows = rows[rows.duplicated([*VALUE, KIND], keep=False)]
        count = len(rows)
        alone = pool_statistics(statistics_of(rows), np.arange(count), count, *variation_of(rows, {}))
        ends = {end: np.log(alone[end]) for end in ("median", "low", "high")}
        groups = rows.reset_index(drop=True).groupby([*VALUE, KIND], sort=False).indices
        for keys, places in groups.items():
            median, low, high = (ends[end][places] for end in ("median", "low", "high"))
            rises = np.diff(median)
            room = np.where(
                rises > 0,
                np.hypot((high - median)[:-1], (median - low)[1:]),
                np.hypot((median - low)[:-1], (high - median)[1:]),
            )
            covered = int((np.abs(rises) <= room).sum())
            cells.append((keys[-1], len(places) - 1, median.var(ddof=1), covered, len(rises)))
    return pd.DataFrame(cells, columns=["kind", "freedom", "variance", "covered", "pairs"])


def traced() -> pd.DataFrame:
    """Return a row for each device time of each process: its kind, and `apart`, how far its largest sample exceeds its
    smallest, of the median."""
    rows = pd.concat([_processes(name) for name in stores()], ignore_index=True)
    rows = rows[rows["metric"].eq("device_time") & rows["n"].gt(1) & rows["median"].gt(0)]
    return rows.assign(apart=(rows["max"] - rows["min"]) / rows["median"])[[KIND, "apart"]]


@cache
def _processes(name: str) -> pd.DataFrame:
    columns = [*VALUE, KIND, *STATISTICS, "unit", "device_name"]
    return load(name, pooled=False)[columns]
