"""What decides which trial of a run comes next, in place of the plan's order, and learns what each measured."""

from collections.abc import Collection, Sequence
from typing import Protocol

from lmsweep.trials.results.record import Record


class Chooser(Protocol):
    """Trials are positions in the order of the run."""

    @property
    def likely(self) -> Sequence[int]:
        """The positions most likely to be chosen after the last one, the likeliest first: compiled ahead."""

    def choose(self, left: Collection[int]) -> int | None:
        """Return the position to run next; None if no trial should run now."""

    def withdraw(self, position: int) -> None:
        """Take back a choice: the trial does not begin, or was cut."""

    def learn_trial(self, position: int, records: Sequence[Record]) -> None:
        """Learn what a trial measured."""
