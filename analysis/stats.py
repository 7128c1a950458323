"""Statistics of many samples at once: one row of numbers per measurement, however many iterations each has.

The interval is the 95 % order-statistic interval of the median: two of the samples themselves, chosen by their rank
from the binomial distribution, so that nothing is assumed about the shape of the noise. Neighbouring iterations
resemble each other (clocks, caches, temperature), which makes n samples worth fewer; the ranks are therefore moved
outwards by sqrt(n / ESS). ESS, the effective sample size, is n (1 - rho) / (1 + rho) with rho the first
autocorrelation of the samples' ranks (an AR(1) model; ranks, because one outlier would hide the correlation of
values), corrected for its bias of -(1 + 4 rho) / n (Marriott and Pope, 1954), and 0 where it is negative. Simulated,
the interval covers the true median in at least 95 % of independent series and, for AR(1) noise of rho 0.7, in 95 % of
series of 30 to 200 samples. Below 20 correlated samples it covers less (85 % at 10), whatever is done with them.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import bdtr

STATISTICS = ("n", "median", "low", "high", "mean", "std", "min", "max")
CONFIDENCE = 0.95

Floats = NDArray[np.float64]


def describe(values: Floats, offsets: NDArray[np.int64]) -> pd.DataFrame:
    """The statistics of ragged rows, in the unit of the values; row i is values[offsets[i]:offsets[i + 1]].

    Columns: n; median; low and high, the interval of the median; mean; std, the sample standard deviation (n - 1);
    min; max. With up to 8 samples the interval is min..max, which covers less than 95 % below 6. What a row is too
    short for is NaN: all but n where it is empty, interval and std where it holds one sample. A row that holds a NaN
    is NaN throughout.
    """
    lengths = np.diff(offsets)
    columns = {name: np.full(len(lengths), np.nan) for name in STATISTICS if name != "n"}
    for n in np.unique(lengths[lengths > 0]):  # rows of one length make a matrix
        rows = np.flatnonzero(lengths == n)
        samples = values[offsets[rows][:, None] + np.arange(n)]
        for name, column in _describe_equal(samples).items():
            columns[name][rows] = column
    return pd.DataFrame({"n": lengths, **columns})


def describe_samples(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median of one series and the low and high end of its interval, as `describe` has them."""
    row = describe(np.asarray(samples, dtype=np.float64), np.array([0, len(samples)])).iloc[0]
    return row["median"], row["low"], row["high"]


def effective_sample_size(samples: Floats) -> Floats:
    """How many independent samples each row of a (rows, n) matrix is worth: between 1/2 and n."""
    return _effective_sample_size(_ranks(samples, np.argsort(samples, axis=1)))


def _describe_equal(samples: Floats) -> dict[str, Floats]:
    rows, n = samples.shape
    order = np.argsort(samples, axis=1)
    ordered = np.take_along_axis(samples, order, axis=1)
    mean = samples.mean(axis=1)
    statistics = {
        "median": (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2,
        "mean": mean,
        "min": ordered[:, 0],
        "max": ordered[:, -1],
    }
    if n > 1:
        effective = _effective_sample_size(_ranks(samples, order))
        below = _samples_below(n, effective)
        each = np.arange(rows)
        statistics["low"] = ordered[each, below]
        statistics["high"] = ordered[each, n - 1 - below]
        statistics["std"] = samples.std(axis=1, ddof=1)
    return {name: np.where(np.isnan(mean), np.nan, column) for name, column in statistics.items()}


def _samples_below(n: int, effective: Floats) -> NDArray[np.int64]:
    """How many samples of n lie below the interval, and as many above; 0 makes it min..max."""
    # P(the median lies outside the samples of rank k+1 .. n-k) = 2 P(Binomial(n, 1/2) <= k)
    independent = max(int((bdtr(np.arange(n // 2), n, 0.5) <= (1 - CONFIDENCE) / 2).sum()) - 1, 0)
    middle = (n - 1) / 2
    widened = middle - (middle - independent) * np.sqrt(n / effective)
    return np.maximum(np.floor(widened), 0).astype(np.int64)


def _effective_sample_size(ranks: Floats) -> Floats:
    n = ranks.shape[1]
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", centred, centred)
    covariance = np.einsum("ij,ij->i", centred[:, 1:], centred[:, :-1])
    rho = np.divide(covariance, variance, out=np.zeros_like(variance), where=variance > 0)
    if n > 4:
        rho = (n * rho + 1) / (n - 4)
    rho = np.clip(rho, 0, 1 - 1 / n)
    return n * (1 - rho) / (1 + rho)


def _ranks(samples: Floats, order: NDArray[np.intp]) -> Floats:
    """Ranks from 0 within each row, given its argsort; equal samples share the mean of their ranks."""
    rows, n = samples.shape
    ordered = np.take_along_axis(samples, order, axis=1)
    places = np.arange(n)
    starts = np.ones((rows, n), dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.ones((rows, n), dtype=bool)
    ends[:, :-1] = starts[:, 1:]
    first = np.maximum.accumulate(np.where(starts, places, 0), axis=1)
    last = np.minimum.accumulate(np.where(ends, places, n - 1)[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty((rows, n))
    np.put_along_axis(ranks, order, (first + last) / 2, axis=1)
    return ranks
