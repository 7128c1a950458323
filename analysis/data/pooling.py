"""Pools several processes that measured the same configuration into one result.

Tables, comparisons and the report share one rule (docs/measuring.md). Every successful attempt at a measurement in an
environment is one process; a failure counts only if no attempt succeeded. The pooled median is the median of the
processes' medians. Its interval covers the variation between processes. It is a Student t interval with one degree of
freedom fewer than there are processes, and never narrower than the variation within the processes implies. It may reach
beyond the samples, since it also covers the processes that did not run.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import stdtrit

from lmsweep.trials.results.outcome import Status
from lmsweep.trials.statistics.median_interval import CONFIDENCE, Floats

RESULT = ("measurement_id", "environment_id")
"""Columns that identify a result: one measurement in one environment."""

REACH = 2.0
"""How many times as large as the largest sample, or as small as the smallest, an end of Student's interval may be.

Where it would be further out, the processes are too few for how much they differ, and there is no interval."""

_VALUE = [*RESULT, "phase", "metric"]
_POOLED = ("n", "median", "low", "high", "mean", "std", "min", "max", "outliers", "processes", "spread")


def newest_rows(frame: pd.DataFrame, *, prefer: Collection[Status] = (Status.OK,)) -> pd.DataFrame:
    """Return the rows of one attempt per result: the newest with a status in `prefer`, else the newest."""
    attempts = frame[[*RESULT, "attempt_id", "started_at"]].assign(preferred=frame["status"].isin([*prefer]))
    attempts = attempts.drop_duplicates([*RESULT, "attempt_id"])
    kept = attempts.sort_values(["preferred", "started_at", "attempt_id"]).drop_duplicates([*RESULT], keep="last")
    if len(kept) == len(attempts):
        return frame
    key = [*RESULT, "attempt_id"]
    chosen = pd.MultiIndex.from_frame(frame[key]).isin(pd.MultiIndex.from_frame(kept[key]))
    return frame[chosen].reset_index(drop=True)


def rows_that_count(frame: pd.DataFrame, *, within: Sequence[str] = ()) -> pd.DataFrame:
    """Return the rows of every successful attempt. Where no attempt succeeded, return those of the newest failure.

    within: further columns that distinguish results, besides RESULT.
    """
    ok = (frame["status"] == Status.OK).to_numpy()
    if ok.all():
        return frame
    key = [*within, *RESULT]
    measured = pd.MultiIndex.from_frame(frame[key]).isin(pd.MultiIndex.from_frame(frame.loc[ok, key]))
    failed = frame[~measured].sort_values(["started_at", "attempt_id"], kind="stable")
    newest = failed.drop_duplicates(key, keep="last")[[*key, "attempt_id"]]
    last = pd.MultiIndex.from_frame(frame[[*key, "attempt_id"]]).isin(pd.MultiIndex.from_frame(newest))
    return frame[ok | (~measured & last)].reset_index(drop=True)


def pool(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each value of each result, pooled over its processes.

    frame: rows with the columns of `describe`, `processes` and `spread`. `samples` are those of all processes in the
    order in which they ran, and `flags` are the union of theirs. All other columns (warm-up, host load, artifacts) are
    those of the newest process.
    """
    rows = rows_that_count(frame)
    codes = np.asarray(rows.groupby(_VALUE, dropna=False, sort=False).ngroup(), dtype=np.int64)
    if len(codes) == len(set(codes)):
        return rows
    order = np.lexsort((rows["attempt_id"], rows["started_at"], codes))
    newest = order[np.append(np.flatnonzero(np.diff(codes[order])), len(order) - 1)]
    statistics = pool_statistics(rows, codes)
    begins = np.flatnonzero(np.append(True, np.diff(codes[order]) > 0))
    pooled: pd.DataFrame = rows.iloc[newest].assign(**{name: statistics[name].to_numpy() for name in _POOLED})
    for name in ("samples", "process_lengths", "flags"):
        pooled[name] = _together(rows[name].iloc[order], begins, distinct=name == "flags").array
    return pooled.iloc[np.argsort(newest)].reset_index(drop=True)


def pool_statistics(rows: pd.DataFrame, codes: NDArray[np.int64]) -> pd.DataFrame:
    """Return pooled statistics, one row per code. codes: for each row, the index (from 0) of its result.

    `processes` counts the processes that have samples. `spread` is the highest minus the lowest of their medians, as a
    fraction of the pooled median; NaN for one process.
    """
    count = int(codes.max()) + 1 if len(codes) else 0
    found = {name: np.full(count, np.nan) for name in _POOLED}
    found["n"], found["processes"] = np.zeros(count), np.zeros(count)
    known = np.flatnonzero(rows["median"].notna())
    known = known[np.argsort(codes[known], kind="stable")]
    of, begins, sizes = np.unique(codes[known], return_index=True, return_counts=True)
    columns = {name: rows[name].to_numpy(dtype=np.float64, na_value=np.nan)[known] for name in _POOLED[:-2]}
    for size in np.unique(sizes):
        places, first = of[sizes == size], begins[sizes == size]
        each = {name: column[first[:, None] + np.arange(size)] for name, column in columns.items()}
        for name, column in _of_equally_many(each).items():
            found[name][places] = column
    table = pd.DataFrame(found)
    whole = ["n", "processes"]
    return table.assign(**{name: table[name].astype(np.int64) for name in whole})


def as_lists(numbers: NDArray[np.int64]) -> pd.Series:
    """Return a column of Arrow lists of length one, one for each number."""
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(len(numbers) + 1, dtype=np.int32)), pa.array(numbers, pa.int64())
    )
    return pd.Series(pd.arrays.ArrowExtensionArray(lists))


def spread_of_medians(k: int) -> float:
    """Return the standard error of the median of k processes whose standard deviation is 1; asymptotic for k > 2."""
    return float(np.sqrt(1 / k if k < 3 else np.pi / 2 / k))


def student(freedom: int) -> float:
    """Return the half width of a 95 % Student t interval, in standard errors. freedom: degrees of freedom."""
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def within_processes(distances: Floats) -> Floats:
    """Return how uncertain pooled medians are because of the variation within each process, shape (results,).

    distances: how far one end of each process's interval is from its median, shape (results, processes). The median of
    the distances is used, because the outliers of one process do not move the median of several. A process without an
    interval counts with the distance of its outermost sample.
    """
    return np.median(distances, axis=1) * spread_of_medians(distances.shape[1])


def _of_equally_many(each: dict[str, Floats]) -> dict[str, Floats]:
    """Return the pooled statistics of results with equally many processes. each: shape (results, processes)."""
    k = each["median"].shape[1]
    if k == 1:
        alone = {name: column[:, 0] for name, column in each.items()}
        return {**alone, "processes": np.ones(len(each["n"])), "spread": np.full(len(each["n"]), np.nan)}
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
        "processes": np.full(len(n), k), "spread": np.where(np.ptp(medians, axis=1) == 0, 0.0, spread),
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
    told = (centre - below >= least - reach) & (centre + above <= most + reach)
    lower, upper = (
        np.where(positive, np.exp(np.where(positive, end, 0)), end) for end in (centre - below, centre + above)
    )
    median = np.median(each["median"], axis=1)  # exp and log would change its last digit
    lower, upper = np.where(below == 0, median, lower), np.where(above == 0, median, upper)
    return np.where(told, lower, np.nan), np.where(told, upper, np.nan)


def _together(column: pd.Series, begins: NDArray[np.int64], *, distinct: bool) -> pd.Series:
    """Concatenate the lists from each row in `begins` up to the next one. If all are null, so is the result.

    distinct: drop repeated values.
    """
    lists = pa.array(column.array)
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.append(np.cumsum(lengths) - lengths, lengths.sum())[np.append(begins, len(lengths))]
    known = np.maximum.reduceat(column.notna().to_numpy().astype(int), begins).astype(bool)
    values = pc.list_flatten(lists)
    if distinct:
        words = values.to_pylist()
        made = pa.array([list(dict.fromkeys(words[a:b])) for a, b in pairwise(ends)], lists.type)
    else:
        made = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values).cast(lists.type)
    made = pc.if_else(pa.array(known), made, pa.scalar(None, lists.type))
    return pd.Series(pd.arrays.ArrowExtensionArray(made))
