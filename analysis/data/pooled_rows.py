"""Pools the processes that measured the same configuration into one result, for tables, comparisons and the report.

Each successful attempt at a measurement in an environment is one process; a failure counts only if none succeeded
(docs/comparing.md). `lmsweep.trials.statistics.pooling` has the statistics.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lmsweep.analysis.data.columns import numbers_of
from lmsweep.analysis.data.process_variation import KIND, VALUE, known_variation, variation_of
from lmsweep.analysis.data.selection import flag_tuples
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.statistics.pooling import POOLED, pool_statistics
from lmsweep.trials.statistics.sample_stats import STATISTICS, Columns
from lmsweep.trials.statistics.variation import widest

RESULT = ["measurement_id", "environment_id"]
"""Columns that identify a result: one measurement in one environment."""

VARIATION = ("variation", "variation_freedom")
"""Columns of pooled rows: relative standard deviation between processes of this kind on this device, and its degrees of
freedom. `pool_statistics` combines both with the distances between the result's own processes."""


def newest_rows(
    frame: pd.DataFrame, *, prefer: Collection[Status] = (Status.OK,), within: Sequence[str] = ()
) -> pd.DataFrame:
    """Return the rows of one attempt per result, which RESULT and `within` distinguish: the newest with a status in
    `prefer`, else the newest."""
    key = [*within, *RESULT]
    attempts = frame[[*key, "attempt_id", "started_at"]].assign(preferred=frame["status"].isin([*prefer]))
    attempts = attempts.sort_values(["preferred", "started_at", "attempt_id"], kind="stable")
    return frame[_has(frame, attempts.drop_duplicates(key, keep="last"), [*key, "attempt_id"])]


def rows_that_count(frame: pd.DataFrame, *, within: Sequence[str] = ()) -> pd.DataFrame:
    """Return the rows of each successful attempt, and of the newest failure of results without one.

    Other programs only make a step on a CPU longer: a disturbed process counts only if no other measured the value.
    within: further columns that distinguish results, besides RESULT.
    """
    disturbed = (frame["device"] == "cpu").to_numpy(bool, copy=True)
    disturbed[disturbed] = [Flag.BUSY_HOST in flags for flags in flag_tuples(frame.loc[disturbed, "flags"])]
    if disturbed.any():
        quiet = frame[~disturbed & frame["median"].notna()]
        frame = frame[~disturbed | ~_has(frame, quiet, [*within, *VALUE])]
    ok = (frame["status"] == Status.OK).to_numpy()
    if not ok.all():
        failed = frame[~_has(frame, frame[ok], [*within, *RESULT])]
        frame = pd.concat([frame[ok], newest_rows(failed, within=within)]).sort_index()
    return frame.reset_index(drop=True)


def _has(frame: pd.DataFrame, rows: pd.DataFrame, key: Sequence[str]) -> NDArray[np.bool_]:
    """Return for each row of the frame whether `rows` have one with the same key."""
    return pd.MultiIndex.from_frame(frame[key]).isin(pd.MultiIndex.from_frame(rows[key]))


def pool(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each value of each result, pooled over its processes.

    `samples` are those of all processes in the order in which they ran, `flags` the union of their flags, KIND the kind
    of process that varies most (`widest`). All other columns are those of the newest process.
    """
    rows = rows_that_count(frame)
    if rows.empty:
        return rows.assign(**dict.fromkeys(VARIATION, np.nan))
    codes = np.asarray(rows.groupby(VALUE, dropna=False, sort=False).ngroup(), dtype=np.int64)  # row -> pooled row
    known, kinds = known_variation(rows), rows[KIND]
    # Where the processes of a pooled row are of several kinds, the kind that varies most stands for all.
    mixed = kinds.groupby(codes).transform("nunique").gt(1).to_numpy()
    rows = rows.assign(**{KIND: kinds.mask(mixed, kinds[mixed].groupby(codes[mixed]).transform(widest))})
    variation = variation_of(rows, known)
    rows = rows.assign(**dict(zip(VARIATION, variation, strict=True)))
    order = np.lexsort((rows["attempt_id"], rows["started_at"], codes))  # by pooled row, the newest process last
    newest = order[np.append(np.flatnonzero(np.diff(codes[order])), len(order) - 1)]  # the last of each pooled row
    statistics = pool_statistics(statistics_of(rows), codes, int(codes.max(initial=-1)) + 1, *variation)
    if len(codes) == len(set(codes)):  # if all rows are of one process, only their intervals change
        return rows.assign(low=statistics["low"][codes], high=statistics["high"][codes])
    begins = np.flatnonzero(np.append(True, np.diff(codes[order]) > 0))  # where in `order` each pooled row begins
    pooled: pd.DataFrame = rows.iloc[newest].assign(**{name: statistics[name] for name in POOLED})
    for name in ("samples", "process_lengths", "flags"):
        pooled[name] = _together(rows[name].iloc[order], begins, distinct=name == "flags").array
    return pooled.iloc[np.argsort(newest)].reset_index(drop=True)  # in the order of `rows`


def statistics_of(rows: pd.DataFrame) -> Columns:
    """Return the columns that `pool_statistics` takes."""
    return {name: numbers_of(rows[name]) for name in STATISTICS}


def as_lists(numbers: NDArray[np.int64]) -> pd.Series:
    """Return a column of Arrow lists of length one, one for each number."""
    bounds = pa.array(np.arange(len(numbers) + 1, dtype=np.int32))
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.ListArray.from_arrays(bounds, pa.array(numbers, pa.int64()))))


def _together(column: pd.Series, begins: NDArray[np.int64], *, distinct: bool) -> pd.Series:
    """Concatenate the lists of the rows from each place in `begins` up to the next one; null if all are null.

    distinct: keep each item of the concatenated list once.
    """
    lists = pa.array(column.array)
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    starts = np.append(0, np.cumsum(lengths))  # of each row's items, and the end of all
    bounds = starts[np.append(begins, len(lengths))]
    known = np.maximum.reduceat(column.notna().to_numpy().astype(int), begins).astype(bool)
    values = pc.list_flatten(lists)
    if distinct:
        words = values.to_pylist()
        made = pa.array([list(dict.fromkeys(words[a:b])) for a, b in pairwise(bounds)], lists.type)
    else:
        made = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values).cast(lists.type)
    made = pc.if_else(pa.array(known), made, pa.scalar(None, lists.type))
    return pd.Series(pd.arrays.ArrowExtensionArray(made))
