"""What stands here for a published number, and what makes it."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from lmsweep.analysis.data.results import Results


class Here(NamedTuple):
    """What stands here for a published number."""

    value: float | str = np.nan
    """In the stored unit; the name of a type."""
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


class OfTable(Protocol):
    """What a store has for the numbers of one table."""

    results: Results
    rows: pd.DataFrame

    def beside(self, row: pd.Series, **other: Any) -> pd.Series | None:
        """Return our result that stands beside a time or peak of the same run, or of one with other conditions."""

    def stored(self, pair: pd.Series, value: str) -> pd.Series | None:
        """Return the row of a value, such as `step.time`, of the result of a pair."""


Maker = Callable[[OfTable, pd.Series], Here | None]
"""Makes the counterpart of a row of `published`; None if the store lacks what it needs."""
