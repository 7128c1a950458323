"""What a store has for the numbers of one table of a report.

A `row` here is one of `published()`, a pair one of `lmsweep.paired` (our result and the published number it matches).
"""

from collections.abc import Callable
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import lmsweep
from lmsweep.analysis.data.columns import is_null
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.reference import PUBLISHED, published, shipped
from lmsweep.orchestrator.feature import check_function
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError


class Here(NamedTuple):
    """Our counterpart of a published number."""

    value: float | str = np.nan
    """In the stored unit; for the metric `dtype`, names of dtypes."""
    low: float = np.nan
    high: float = np.nan
    ratio: tuple[float, float, float] | None = None
    """Theirs / ours, and the ends of its interval."""
    verdict: str = ""
    missing: str = ""
    """A word in place of the value."""
    why: str = ""
    """Why it is missing."""
    differs: str = ""
    """What differs from the published number: conditions, or how it was determined."""


@cache
def conditions() -> list[str]:
    """Return the fields of a trial that published tables state."""
    return [name for name in published() if name in CONFIG_FIELDS]


@lru_cache(1)  # the tables and parts of a report ask for the pairs of the same results
def pairs_of(results: Results) -> pd.DataFrame:
    """Return our results, each paired with a published number; the index is the number's row in `published()`.

    The columns are those of `lmsweep.paired`.
    """
    nothing = pd.DataFrame(
        columns=["device_name", "device", "device_there", "source"], index=pd.Index([], name="number")
    )
    if results.everything.empty:
        return nothing
    check_function("paired", "the tables beside published numbers")
    try:
        pairs = lmsweep.paired(results.attempts, PUBLISHED, results.everything).frame
    except RequestError:  # none of these results has a counterpart
        return nothing
    # The shipped store has, beside each published value, its row in `published()`.
    stored = pd.read_parquet(f"{shipped()[PUBLISHED]}/measurements", dtype_backend="numpy_nullable")
    number_of = stored.set_index(["sweep", "attempt_id", "phase", "metric"])["number"]
    published_values = pd.MultiIndex.from_frame(pairs[["source", "attempt_id_there", "stored_there", "metric_there"]])
    pairs = pairs.set_index(pd.Index(number_of.reindex(published_values).to_numpy(), name="number"))
    return pairs[pairs.index.notna()]  # public benchmarks are in no report


def stated() -> list[str]:
    """Return conditions in which our result and a published number must agree where both state them.

    The precision is matched separately, and how many steps were measured need not agree.
    """
    return [name for name in conditions() if name not in ("precision", "measure_steps")]


class TableResults:
    """What a store has for the numbers of one table."""

    def __init__(self, results: Results, rows: pd.DataFrame) -> None:
        """results: of the trials of the table's grid. rows: of `published`, those of the table."""
        self.results, self.rows, self.frame = results, rows, results.everything
        report = published().query("source == @rows.source.iloc[0]")
        pairs = pairs_of(results)
        pairs = pairs[pairs.index.isin(report.index)]
        if rows["device"].nunique() > 1:  # its columns, or its rows, are devices
            pairs = pairs[pairs["device"].eq(pairs["device_there"])]
        self.pairs = _one_of_each(pairs, rows)
        self._numbers = report.loc[self.pairs.index]
        """The published number of each pair, in the order of `pairs`."""

    def beside(self, row: pd.Series, *, metric: str = "time", **other: Any) -> pd.Series | None:
        """Return the pair of another published number: of this metric, in the run of the row; None if there is none.

        other: conditions that replace those of the row. A condition that either number does not state agrees with any.
        """
        same = (self._numbers["metric"] == metric).to_numpy(copy=True)
        if (of_table := same & self._numbers.index.isin(self.rows.index)).any():
            same = of_table  # numbers of another table may leave conditions open, and so agree with too much
        wanted = {name: other.get(name, row[name]) for name in ("phase", "precision", *stated())}
        for name, value in wanted.items():
            if not is_null(value):
                same &= (self._numbers[name].isna() | self._numbers[name].eq(value).fillna(False)).to_numpy(bool)
        return self.pairs[same].iloc[0] if same.any() else None

    def stored(self, pair: pd.Series, value: str) -> pd.Series | None:
        """Return the row of a value, such as `step.time`, of the result of a pair."""
        place = self._places.get((pair["measurement_id"], pair["environment_id"], *value.rsplit(".", 1)))
        return None if place is None else self.frame.iloc[place]

    @cached_property
    def _places(self) -> dict[tuple[Any, ...], int]:
        keys = self.frame[["measurement_id", "environment_id", "phase", "metric"]].itertuples(index=False, name=None)
        known = self.frame["median"].notna()
        return {key: place for place, (key, has) in enumerate(zip(keys, known, strict=True)) if has}


def _one_of_each(pairs: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return one pair of each number, if it has some on several devices that of the device with most of the rows."""
    count = pairs["device_name"][pairs.index.isin(rows.index)].value_counts()
    most_first = pairs.sort_values("device_name", key=lambda names: -names.map(count).fillna(0), kind="stable")
    return most_first[~most_first.index.duplicated()]


Maker = Callable[[TableResults, pd.Series], Here | None]
"""Makes the counterpart of a row of `published`; None if the store lacks what it needs."""
