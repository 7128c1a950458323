"""Tables whose columns are of different kinds: numbers of several units, words, verdicts; one line after the other."""

from dataclasses import dataclass, field

import pandas as pd

LOW, HIGH = "_low", "_high"
"""What is added to a column's name for the ends of its 95 % interval."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What `analysis.pivot` cannot lay out, for `analysis.render`."""

    title: str
    """What the lines are."""
    frame: pd.DataFrame
    """Plain columns; numbers in SI units. `time_low` and `time_high` are printed with `time`, as its interval.
    `status`, `flags` (tuples) and `reason` are printed in a cell of the line and below the table."""
    keys: list[str]
    """Columns that tell the lines apart; the first ones."""
    units: dict[str, str]
    """Stored unit of each column of numbers."""
    together: tuple[str, ...] = ()
    """Columns that are read against each other: they are printed in one unit."""
    marked: str = ""
    """Column whose cells bear the marks of flags and reasons; "" is the first that is no key."""
    conditions: dict[str, str] = field(default_factory=dict)
    """What all lines have in common."""
    decimals: dict[str, int] = field(default_factory=dict)
    """Of columns whose numbers differ in a digit that four do not show: how many decimals they are printed with."""
    notes: list[str] = field(default_factory=list)
    """Sentences below the table."""

    def __post_init__(self) -> None:
        assert set(self.keys) | set(self.units) <= set(self.frame.columns), "every name is that of a column"
