"""Statistics of many series of samples at once: one row per series, whatever its length."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.trials.statistics.median_interval import Floats, count_outliers, intervals

STATISTICS = ("n", "median", "low", "high", "mean", "std", "min", "max", "outliers")


def describe(values: Floats, offsets: NDArray[np.int64]) -> pd.DataFrame:
    """Return the statistics of ragged rows, in the unit of the values; row i is values[offsets[i]:offsets[i + 1]].

    Columns: n; median; low and high, its 95 % interval (see `median_interval`); mean; std, the
    sample standard deviation (n - 1); min; max; outliers, the number of samples more than three interquartile ranges
    outside the quartiles. Everything but n is NaN for an empty row; low, high and std are NaN for a single sample. If
    one sample of a row is NaN, so are all its statistics but n.
    """
    lengths = np.diff(offsets)
    columns = {name: np.full(len(lengths), np.nan) for name in STATISTICS if name != "n"}
    for n in np.unique(lengths[lengths > 0]):  # rows of equal length form a matrix
        rows = np.flatnonzero(lengths == n)
        samples = values[offsets[rows][:, None] + np.arange(n)]
        for name, column in _describe_equal(samples).items():
            columns[name][rows] = column
    return pd.DataFrame({"n": lengths, **columns})


class MedianInterval(NamedTuple):
    """A median and its 95 % interval, in the unit of the samples."""

    median: float
    low: float
    high: float


def describe_samples(samples: Sequence[float]) -> MedianInterval:
    """Return the median of one series and its interval, as `describe` computes them."""
    row = describe(np.asarray(samples, dtype=np.float64), np.array([0, len(samples)])).iloc[0]
    return MedianInterval(median=row["median"], low=row["low"], high=row["high"])


def _describe_equal(samples: Floats) -> dict[str, Floats]:
    n = samples.shape[1]
    mean = samples.mean(axis=1)
    median, low, high = intervals(samples)
    statistics = {
        "median": median,
        "mean": mean,
        "min": samples.min(axis=1),
        "max": samples.max(axis=1),
        "outliers": count_outliers(samples),
    }
    if n > 1:
        statistics |= {"low": low, "high": high, "std": samples.std(axis=1, ddof=1)}
    return {name: np.where(np.isnan(mean), np.nan, column) for name, column in statistics.items()}
