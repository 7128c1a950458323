"""Statistics of many series of samples at once, whatever their lengths."""

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.statistics.median_interval import Floats, count_outliers, intervals

STATISTICS = ("n", "median", "low", "high", "mean", "std", "min", "max", "outliers")

Columns = dict[str, NDArray[np.float64] | NDArray[np.int64]]
"""Name of a statistic -> its value for each row."""


def describe(values: Floats, offsets: NDArray[np.int64]) -> Columns:
    """Return STATISTICS of ragged rows, each of shape (rows,); row i is values[offsets[i]:offsets[i + 1]].

    All but n are NaN for a row that is empty or holds a NaN; low, high and std also for a single sample.
    """
    lengths = np.diff(offsets)
    columns = {name: np.full(len(lengths), np.nan) for name in STATISTICS if name != "n"}
    for n in np.unique(lengths[lengths > 0]):  # rows of equal length form a matrix
        rows = np.flatnonzero(lengths == n)
        samples = values[offsets[rows][:, None] + np.arange(n)]
        mean = samples.mean(axis=1)
        median, low, high = intervals(samples)
        found = {"median": median, "mean": mean, "min": samples.min(axis=1), "max": samples.max(axis=1)}
        found["outliers"] = count_outliers(samples)
        if n > 1:
            found |= {"low": low, "high": high, "std": samples.std(axis=1, ddof=1)}
        for name, column in found.items():
            columns[name][rows] = np.where(np.isnan(mean), np.nan, column)
    return {"n": lengths, **columns}
