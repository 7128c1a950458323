"""Which trial of a run comes next where a search chooses, and which may still begin before its time ends or Ctrl-C."""

import time
from collections.abc import Callable, Collection, Sequence
from threading import Lock
from types import FrameType
from typing import Protocol

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.plan_estimate import ENDING_SECONDS, latest_end
from lmsweep.orchestrator.running.progress.eta import Eta
from lmsweep.trials.results.record import Record


class Chooser(Protocol):
    """Chooses the next trial of a run, by its position in the plan's order, and learns what each measured."""

    @property
    def likely(self) -> Sequence[int]:
        """The positions most likely to be chosen after the last one, the likeliest first: compiled ahead."""

    def choose(self, left: Collection[int]) -> int | None:
        """Return the position to run next; None if no trial should run now."""

    def withdraw(self, position: int) -> None:
        """Take back a choice: the trial does not begin, or was cut."""

    def learn_trial(self, position: int, records: Sequence[Record]) -> None:
        """Learn what a trial measured."""


class Gate:
    """Admits trials until the first Ctrl-C closes it; a second raises KeyboardInterrupt. Two threads use it."""

    def __init__(self, eta: Eta, *, until: float | None, on_close: Callable[[], None], budget: float = 0.0) -> None:
        """until: time.monotonic() by which all trials must have ended; None: no limit. budget: all seconds given."""
        self._eta = eta
        self.until = until
        self.late_seconds = latest_end(budget) - ENDING_SECONDS - budget  # `latest_end` is of the whole command
        """Seconds after `until` in which trials may still end before they are cut."""
        self._on_close = on_close
        self._lock = Lock()
        self._running: dict[int, PlannedTrial] = {}
        """Index in the plan -> a trial that has begun and not ended."""
        self._ended: set[int] = set()
        self.closed = False
        self.is_cut = False
        """Whether what ran at the end of the time was ended without a result."""
        self.kept_out: list[PlannedTrial] = []
        """Trials that did not begin, as they did not fit into the time."""
        self.cut: list[PlannedTrial] = []
        """Trials that were ended because the time was over."""

    def admits(self, planned: PlannedTrial) -> bool:
        """Return whether the trial may begin now; if so it counts as begun, else it may be asked about again."""
        if self.closed:
            return False
        with self._lock:
            if self.until is not None:
                # It waits for the running trials that take the same slots, evenly; on one machine, for all.
                same = [one for one in self._running.values() if self._eta.alone or one.placement == planned.placement]
                waits = sum(self._eta.still_expected(one) / one.slots for one in same)
                if time.monotonic() + waits + self._eta.expected(planned) > self.until:
                    return False
            self._running[planned.index] = planned
        return True

    def shortest_first(self, trials: Sequence[PlannedTrial]) -> list[PlannedTrial]:
        """Return the trials; the shortest first if they take turns within a time, so that most of them fit."""
        return sorted(trials, key=self._eta.expected) if self.until is not None and self._eta.alone else list(trials)

    def keeps_all_out(self, trials: Sequence[PlannedTrial]) -> bool:
        """Return whether not even the shortest trial fits; if so, all count as kept out."""
        if self.until is None or time.monotonic() + min(map(self._eta.expected, trials)) <= self.until:
            return False
        self.kept_out += trials
        return True

    def ended(self, planned: PlannedTrial) -> None:
        with self._lock:
            self._running.pop(planned.index, None)
            self._ended.add(planned.index)

    def close_as_time_is_over(self) -> None:
        """Make the next Ctrl-C, which the caller sends, end at once what still runs."""
        self.is_cut = not self.closed  # if it was closed already, Ctrl-C has ended the run, not the time
        self.closed = True

    def account_for(self, trials: Sequence[PlannedTrial], running: Sequence[PlannedTrial]) -> None:
        """Note that the running trials were cut, and that those of `trials` which have not ended did not begin."""
        self.cut += running
        known = self._ended | {one.index for one in (*self.cut, *self.kept_out)}
        for planned in trials:
            if planned.index not in known:
                self.keep_out(planned)

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.closed:
            raise KeyboardInterrupt
        self.closed = True
        self._on_close()

    def keep_out(self, planned: PlannedTrial) -> None:
        """Note that the trial will not begin."""
        self.kept_out.append(planned)
        self._eta.left_out(planned)
