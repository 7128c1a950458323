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
    on_cpu = (frame["device"] == "cpu").to_numpy(bool)
    is_disturbed = np.zeros(len(frame), dtype=bool)
    is_disturbed[on_cpu] = [Flag.BUSY_HOST in flags for flags in flag_tuples(frame.loc[on_cpu, "flags"])]
    if is_disturbed.any():
        quiet = frame[~is_disturbed & frame["median"].notna()]
        frame = frame[~(is_disturbed & _has(frame, quiet, [*within, *VALUE]))]
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
    # The number of the value that each row measured, in the order in which the values first occur: 0 0 1 0 1 2.
    value_of_row = np.asarray(rows.groupby(VALUE, dropna=False, sort=False).ngroup(), dtype=np.int64)
    count = int(value_of_row.max()) + 1
    known = known_variation(rows)  # by the kind of each process, so before the next line
    rows = rows.assign(**{KIND: _widest_kinds(rows[KIND], value_of_row)})
    variation = variation_of(rows, known)
    rows = rows.assign(**dict(zip(VARIATION, variation, strict=True)))
    statistics = pool_statistics(statistics_of(rows), value_of_row, count, *variation)  # an element a value
    if count == len(rows):  # one process measured each value: the rows stay, and only their intervals change
        return rows.assign(low=statistics["low"], high=statistics["high"])
    # Sorted, 0 0 0 1 1 2: value i has the rows from bounds[i] up to bounds[i + 1], here 0 3 5 6, the newest last.
    rows = rows.iloc[np.lexsort((rows["attempt_id"], rows["started_at"], value_of_row))]
    bounds = np.append(0, np.cumsum(np.bincount(value_of_row)))
    newest = rows.iloc[bounds[1:] - 1]
    pooled = newest.assign(**{name: statistics[name] for name in POOLED})
    for name in ("samples", "process_lengths"):
        pooled[name] = _joined_lists(rows[name], bounds)
    pooled["flags"] = _distinct_words(rows["flags"], bounds)
    return pooled.sort_index().reset_index(drop=True)


def _widest_kinds(kinds: pd.Series, value_of_row: NDArray[np.int64]) -> pd.Series:
    """Return for each row the kind that varies most among the rows of its value."""
    of_value = kinds.groupby(value_of_row)
    is_mixed = of_value.transform("nunique").gt(1).to_numpy()  # hardly any: `widest` of all would take long
    mixed = kinds[is_mixed].groupby(value_of_row[is_mixed]).transform(widest)
    return kinds.mask(is_mixed, mixed)


def statistics_of(rows: pd.DataFrame) -> Columns:
    return {name: numbers_of(rows[name]) for name in STATISTICS}


def as_lists(numbers: NDArray[np.int64]) -> pd.Series:
    """Return a column of Arrow lists of length one, one for each number."""
    bounds = pa.array(np.arange(len(numbers) + 1, dtype=np.int32))
    return pd.Series(ArrowExtensionArray(pa.ListArray.from_arrays(bounds, pa.array(numbers, pa.int64()))))


def _joined_lists(column: pd.Series, bounds: NDArray[np.int64]) -> ArrowExtensionArray:
    """Join the lists of the rows between each two bounds; null if all are null.

    [7 8] null [9] with the bounds 0 2 3 become [7 8] [9]: Arrow holds the numbers 7 8 9 and, of the rows, where the
    list of each begins, 0 2 2 3. The joined lists have the same numbers, and begin where the rows of their bounds do.
    """
    lists = pa.array(column.array)
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    begins_of_rows = np.append(0, np.cumsum(lengths))
    begins = pa.array(begins_of_rows[bounds], pa.int32())
    joined = pa.ListArray.from_arrays(begins, pc.list_flatten(lists)).cast(lists.type)
    has_list = np.logical_or.reduceat(column.notna().to_numpy(), bounds[:-1])
    return ArrowExtensionArray(pc.if_else(pa.array(has_list), joined, pa.scalar(None, lists.type)))


def _distinct_words(column: pd.Series, bounds: NDArray[np.int64]) -> ArrowExtensionArray:
    """Return each word of the rows between each two bounds once."""
    of_rows = flag_tuples(column).to_list()
    words = [list(dict.fromkeys(chain.from_iterable(of_rows[begin:end]))) for begin, end in pairwise(bounds)]
    return ArrowExtensionArray(pa.array(words, pa.array(column.array).type))
