"""Pools the processes that measured the same configuration into one result, for tables, comparisons and the report.

Each successful attempt at a measurement in an environment is one process; a failure counts only if none succeeded
(docs/comparing.md). `lmsweep.trials.statistics.pooling` has the statistics.
"""

from collections.abc import Collection, Sequence
from itertools import chain, pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pandas.arrays import ArrowExtensionArray

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
    """Return the rows of one attempt per result (by RESULT and `within`): the newest preferred, else the newest."""
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
    pooled_row = np.asarray(rows.groupby(VALUE, dropna=False, sort=False).ngroup(), dtype=np.int64)
    known, kinds = known_variation(rows), rows[KIND].copy()
    mixed = kinds.groupby(pooled_row).transform("nunique").gt(1).to_numpy()  # hardly any: `widest` of all takes long
    kinds[mixed] = kinds[mixed].groupby(pooled_row[mixed]).transform(widest)
    rows = rows.assign(**{KIND: kinds})
    variation = variation_of(rows, known)
    rows = rows.assign(**dict(zip(VARIATION, variation, strict=True)))
    statistics = pool_statistics(statistics_of(rows), pooled_row, int(pooled_row.max()) + 1, *variation)
    if len(rows) == len(statistics["n"]):  # if all rows are of one process, only their intervals change
        return rows.assign(low=statistics["low"][pooled_row], high=statistics["high"][pooled_row])
    by_age = np.lexsort((rows["attempt_id"], rows["started_at"], pooled_row))  # the newest of each pooled row last
    rows, pooled_row = rows.iloc[by_age], pooled_row[by_age]
    is_newest = np.append(np.diff(pooled_row) > 0, True)
    begins = np.flatnonzero(np.append(True, is_newest[:-1]))  # where each pooled row begins
    pooled: pd.DataFrame = rows[is_newest].assign(**{name: statistics[name] for name in POOLED})
    for name in ("samples", "process_lengths"):
        pooled[name] = _joined_lists(rows[name], begins)
    pooled["flags"] = _distinct_words(rows["flags"], begins)
    return pooled.sort_index().reset_index(drop=True)


def statistics_of(rows: pd.DataFrame) -> Columns:
    return {name: numbers_of(rows[name]) for name in STATISTICS}


def as_lists(numbers: NDArray[np.int64]) -> pd.Series:
    """Return a column of Arrow lists of length one, one for each number."""
    bounds = pa.array(np.arange(len(numbers) + 1, dtype=np.int32))
    return pd.Series(ArrowExtensionArray(pa.ListArray.from_arrays(bounds, pa.array(numbers, pa.int64()))))


def _joined_lists(column: pd.Series, begins: NDArray[np.int64]) -> ArrowExtensionArray:
    """Join the lists of the rows from each place in `begins` up to the next one; null if all are null."""
    lists = pa.array(column.array)
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.append(0, np.cumsum(lengths))[np.append(begins, len(lengths))]
    joined = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pc.list_flatten(lists)).cast(lists.type)
    any_list = np.logical_or.reduceat(column.notna().to_numpy(), begins)
    return ArrowExtensionArray(pc.if_else(pa.array(any_list), joined, pa.scalar(None, lists.type)))


def _distinct_words(column: pd.Series, begins: NDArray[np.int64]) -> ArrowExtensionArray:
    """Return each word of the same rows once."""
    tuples, bounds = flag_tuples(column).to_list(), pairwise([*begins, len(column)])
    words = [list(dict.fromkeys(chain.from_iterable(tuples[a:b]))) for a, b in bounds]
    return ArrowExtensionArray(pa.array(words, pa.array(column.array).type))
