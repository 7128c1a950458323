"""Tables with one line per item, whose columns hold numbers of several units, words or verdicts."""

from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

LOW, HIGH = "_low", "_high"
"""Suffixes of the columns that hold the ends of another column's 95 % interval."""

Tone = Literal["good", "bad", "unclear", "neutral"]
"""How a word is to be taken; a terminal shows it as a colour."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A table with one line per item, for `lmsweep.analysis.render`."""

    title: str
    frame: pd.DataFrame
    """The columns, with numbers in SI units. `time_low` and `time_high` are printed as the interval of `time`;
    `status`, `flags` (tuples) and `reason` as marks that are explained below the table."""
    keys: list[str]
    """The first columns, which distinguish the lines."""
    units: dict[str, str]
    """Stored unit of each column of numbers."""
    together: tuple[str, ...] = ()
    """Columns that are compared with each other, and so printed in the same unit."""
    footnotes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Column -> columns that hold its footnotes: tuples of words, or sentences ("" is none). By default, `flags` and
    `reason` are the footnotes of the first column that is not a key."""
    conditions: dict[str, str] = field(default_factory=dict)
    """Keys that have the same value in all lines, and the value."""
    decimals: dict[str, int] = field(default_factory=dict)
    """Number of decimals of columns for which four significant digits are too few."""
    p_values: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    tones: dict[str, Tone] = field(default_factory=dict)
    """Words that a terminal colours."""

    def __post_init__(self) -> None:
        assert set(self.keys) | set(self.units) <= set(self.frame.columns), "every name is a column"

    def __len__(self) -> int:
        return len(self.frame)
