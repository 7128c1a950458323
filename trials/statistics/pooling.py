"""Pools several processes that measured the same configuration into one median with an interval.

The pooled median is the median of the processes' medians. Its interval covers the variation between processes: it is
Student's t interval with one degree of freedom fewer than there are processes, and never narrower than the variation
within the processes implies. It may reach beyond the samples, since it also covers the processes that did not run.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from lmsweep.trials.statistics.median_interval import CONFIDENCE, Floats
from lmsweep.trials.statistics.sample_stats import STATISTICS, Columns

REACH = 2.0
"""How many times as large as the largest sample, or as small as the smallest, an end of Student's interval may be.

Where it would be further out, the processes are too few for how much they differ, and there is no interval."""

POOLED = (*STATISTICS, "processes", "spread")


def pool_statistics(columns: Columns, codes: NDArray[np.int64], count: int) -> Columns:
    """Return POOLED of `count` results, each of shape (count,).

    columns: STATISTICS of each process; codes: the index (from 0) of its result. `processes` counts those that have
    samples. `spread` is the range of their medians as a share of the pooled median; NaN for one process.
    """
    found = {name: np.full(count, np.nan) for name in POOLED}
    found["n"], found["processes"] = np.zeros(count), np.zeros(count)
    known = np.flatnonzero(~np.isnan(columns["median"]))
    known = known[np.argsort(codes[known], kind="stable")]
    of, begins, sizes = np.unique(codes[known], return_index=True, return_counts=True)
    for size in np.unique(sizes):  # results with equally many processes form a matrix
        places, first = of[sizes == size], begins[sizes == size]
        each = {name: columns[name][known][first[:, None] + np.arange(size)] for name in STATISTICS}
        for name, column in _pooled(each).items():
            found[name][places] = column
    return found | {name: found[name].astype(np.int64) for name in ("n", "processes")}


def spread_of_medians(k: int) -> float:
    """Return the standard error of the median of k processes whose standard deviation is 1; asymptotic for k > 2."""
    return float(np.sqrt(1 / k if k < 3 else np.pi / 2 / k))


def student(freedom: int) -> float:
    """Return the half width of a 95 % Student t interval, in standard errors. freedom: degrees of freedom."""
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def within_processes(distances: Floats) -> Floats:
    """Return how uncertain pooled medians are because of the variation within each process, shape (results,).

    distances: from each process's median to one end of its interval, else to its outermost sample, shape (results,
    processes). Their median is used, because the outliers of one process do not move the median of several.
    """
    return np.median(distances, axis=1) * spread_of_medians(distances.shape[1])


def _pooled(each: dict[str, Floats]) -> dict[str, Floats]:
    """Pool results with equally many processes; each: shape (results, processes)."""
    results, k = each["median"].shape
    if k == 1:
        alone = {name: column[:, 0] for name, column in each.items()}
        return {**alone, "processes": np.ones(results), "spread": np.full(results, np.nan)}
    n, medians = each["n"], each["median"]
    total, median = n.sum(axis=1), np.median(medians, axis=1)
    mean = (n * each["mean"]).sum(axis=1) / total
    squares = (np.nan_to_num(each["std"]) ** 2 * (n - 1) + n * (each["mean"] - mean[:, None]) ** 2).sum(axis=1)
    low, high = _between_processes(each)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.ptp(medians, axis=1) / np.abs(median)
    return {
        "n": total, "median": median, "low": low, "high": high, "mean": mean, "std": np.sqrt(squares / (total - 1)),
        "min": each["min"].min(axis=1), "max": each["max"].max(axis=1), "outliers": each["outliers"].sum(axis=1),
        "processes": np.full(results, k), "spread": np.where(np.ptp(medians, axis=1) == 0, 0.0, spread),
    }  # fmt: skip


def _between_processes(each: dict[str, Floats]) -> tuple[Floats, Floats]:
    """Return the ends of the pooled median's interval, on a logarithmic scale if all values are positive."""
    k = each["median"].shape[1]
    positive = np.asarray((each["min"] > 0).all(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        medians, low, high, least, most = (
            np.where(positive[:, None], np.log(each[name]), each[name])
            for name in ("median", "low", "high", "min", "max")
        )
    low, high = np.where(np.isnan(low), least, low), np.where(np.isnan(high), most, high)
    centre, least, most = np.median(medians, axis=1), least.min(axis=1), most.max(axis=1)
    between = student(k - 1) * spread_of_medians(k) * np.std(medians, axis=1, ddof=1)
    below, above = (np.maximum(between, within_processes(np.abs(end - medians))) for end in (low, high))
    reach = np.where(positive, np.log(REACH), most - least)
    known = (centre - below >= least - reach) & (centre + above <= most + reach)
    lower, upper = (
        np.where(positive, np.exp(np.where(positive, end, 0)), end) for end in (centre - below, centre + above)
    )
    median = np.median(each["median"], axis=1)  # exp and log would change its last digit
    lower, upper = np.where(below == 0, median, lower), np.where(above == 0, median, upper)
    return np.where(known, lower, np.nan), np.where(known, upper, np.nan)
