"""Pools several processes that measured the same configuration into one median with an interval.

The pooled median is the Hodges-Lehmann centre of the processes' medians. Its interval covers the variation between
processes (`lmsweep.trials.statistics.variation`), so it reaches beyond the samples, and with one process it is that of
its samples, widened by the variation of other processes. Values that may be negative have no logarithm: their interval
is Student's t of the cell's processes alone.
"""

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.statistics.median_interval import NORMAL, Floats
from lmsweep.trials.statistics.sample_stats import STATISTICS, Columns
from lmsweep.trials.statistics.significance import WIDEST
from lmsweep.trials.statistics.variation import centre, error_of_centre, moderated, reach

POOLED = (*STATISTICS, "processes", "spread")


def pool_statistics(columns: Columns, codes: NDArray[np.int64], count: int, scale: Floats, freedom: Floats) -> Columns:
    """Return POOLED of `count` results, each of shape (count,).

    columns: STATISTICS of each process; codes: the index (from 0) of its result; scale, freedom: the `Variation` of
    each process. `processes` counts those that have samples. `spread` is the range of their medians as a share of the
    pooled median; NaN for one process.
    """
    found = {name: np.full(count, np.nan) for name in POOLED}
    found["n"], found["processes"] = np.zeros(count), np.zeros(count)
    known = np.flatnonzero(~np.isnan(columns["median"]))
    known = known[np.argsort(codes[known], kind="stable")]
    indices, begins, sizes = np.unique(codes[known], return_index=True, return_counts=True)
    for size in np.unique(sizes):  # results with equally many processes form a matrix
        places, first = indices[sizes == size], begins[sizes == size]
        processes = known[first[:, None] + np.arange(size)]  # (results, size)
        each = {name: columns[name][processes] for name in STATISTICS}
        widest = processes[np.arange(len(processes)), scale[processes].argmax(axis=1)]  # whose variation is largest
        for name, column in _pooled(each, scale[widest], freedom[widest]).items():
            found[name][places] = column
    return found | {name: found[name].astype(np.int64) for name in ("n", "processes")}


def _pooled(each: dict[str, Floats], scale: Floats, freedom: Floats) -> dict[str, Floats]:
    """Pool results with equally many processes. each: STATISTICS, each of shape (results, processes)."""
    results, k = each["median"].shape
    low, high = _interval(each, scale, freedom)
    if k == 1:
        only = {name: column[:, 0] for name, column in each.items()}
        return {**only, "low": low, "high": high, "processes": np.ones(results), "spread": np.full(results, np.nan)}
    n, medians = each["n"], each["median"]
    total, median = n.sum(axis=1), centre(medians)
    mean = (n * each["mean"]).sum(axis=1) / total
    squares = (np.nan_to_num(each["std"]) ** 2 * (n - 1) + n * (each["mean"] - mean[:, None]) ** 2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.ptp(medians, axis=1) / np.abs(median)
    return {
        "n": total, "median": median, "low": low, "high": high, "mean": mean, "std": np.sqrt(squares / (total - 1)),
        "min": each["min"].min(axis=1), "max": each["max"].max(axis=1), "outliers": each["outliers"].sum(axis=1),
        "processes": np.full(results, k), "spread": np.where(np.ptp(medians, axis=1) == 0, 0.0, spread),
    }  # fmt: skip


def distances_within(
    median: Floats, low: Floats, high: Floats, std: Floats, *, positive: NDArray[np.bool_] | bool = True
) -> tuple[Floats, Floats]:
    """Return how far the interval of each process's samples reaches below and above its median.

    On a logarithmic scale where `positive`. Samples without an interval count as a single one, whose distance is NORMAL
    standard deviations. Where there is only one sample it is 0: the variation between processes includes its own.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        by_std = NORMAL * np.nan_to_num(std) / np.where(positive, median, 1.0)
        below, above = (
            np.where(positive, np.log(end / start), end - start) for start, end in ((low, median), (median, high))
        )
    return np.where(np.isnan(below), by_std, below), np.where(np.isnan(above), by_std, above)


def _interval(each: dict[str, Floats], scale: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the pooled median's interval, on a logarithmic scale if all values are positive.

    It covers the variation between processes and within each; NaN if it reaches far beyond the samples. scale, prior:
    scale and freedom of the `Variation`.
    """
    positive = np.asarray((each["min"] > 0).all(axis=1))
    median = centre(each["median"])
    below, above = _half_widths(each, positive, scale, prior)
    low, high = (_on_scale(median, positive) + way for way in (-below, above))
    least, most = _on_scale(each["min"].min(axis=1), positive), _on_scale(each["max"].max(axis=1), positive)
    limit = np.where(positive, WIDEST, most - least)  # beyond the samples
    known = (low >= least - limit) & (high <= most + limit)
    if each["median"].shape[1] == 1:
        # A prior is of logarithms. Where it cannot apply, one process without an interval does not show its variation.
        varies_unknown = ~positive & (scale > 0) & np.isnan(each["low"][:, 0])
        known &= ~varies_unknown
    ends = []
    for end, distance in ((low, below), (high, above)):
        value = np.where(positive, np.exp(np.where(positive & known, end, 0)), end)  # 0: where it is not used
        value = np.where(distance == 0, median, value)  # exp and log would change its last digit
        ends.append(np.where(known, value, np.nan))
    return ends[0], ends[1]


def _half_widths(
    each: dict[str, Floats], positive: NDArray[np.bool_], scale: Floats, prior: Floats
) -> tuple[Floats, Floats]:
    """Return how far the interval reaches below and above the pooled median."""
    k = each["median"].shape[1]
    medians = _on_scale(each["median"], positive[:, None])
    variance = medians.var(axis=1, ddof=1) if k > 1 else np.zeros(len(medians))
    prior, scale = np.where(positive, prior, 0.0), np.where(positive, scale, 0.0)  # without: Student's t
    deviation, freedom = moderated(variance, np.full(len(variance), k - 1.0), scale, prior)
    error = error_of_centre(np.array(float(k)))
    between = reach(freedom) * deviation * error
    # The outliers of one process do not move the centre of several: the median of their distances counts.
    within = distances_within(*(each[name] for name in ("median", "low", "high", "std")), positive=positive[:, None])
    distances = [np.median(one, axis=1) * error for one in within]
    # How far several medians lie apart includes the variation within processes. One process does not show it: add both.
    below, above = (np.hypot(between, one) if k == 1 else np.maximum(between, one) for one in distances)
    return below, above


def _on_scale(values: Floats, positive: NDArray[np.bool_]) -> Floats:
    """Return the logarithms where `positive`, elsewhere the values."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(positive, np.log(values), values)
