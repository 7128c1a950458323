"""Decides which trials may still begin, given the run's time budget and Ctrl-C."""

import time
from collections.abc import Callable, Sequence
from threading import Lock
from types import FrameType

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.progress.eta import Eta

PATIENCE = 2
"""A trial that runs when the budget ends may take this many times its estimate; the first, as many budgets."""


class Gate:
    """Admits trials until Ctrl-C closes it; a second Ctrl-C raises KeyboardInterrupt.

    One thread asks for admission while another reports which trials have ended.
    """

    def __init__(self, eta: Eta, *, until: float | None, on_close: Callable[[], None], here: bool = True) -> None:
        """until: time.monotonic() by which all trials must have ended; None for no limit. here: on this machine."""
        self._here = here
        self._eta = eta
        self.until = until
        self._least = 0.0 if until is None else PATIENCE * (until - time.monotonic())
        self._on_close = on_close
        self._lock = Lock()
        self._begun: dict[int, PlannedTrial] = {}
        self.closed = False
        self.stopped = False
        """No trial may begin any more; those that run end as usual."""
        self.kept_out: list[PlannedTrial] = []
        """Trials that did not fit into the time budget."""

    def admits(self, planned: PlannedTrial) -> bool:
        """Return whether the trial may begin. An admitted trial counts as begun."""
        if self.closed:
            return False
        with self._lock:
            if self.stopped:
                self.kept_out.append(planned)
                return False
            if self.until is not None:
                before = [one for one in self._begun.values() if one.placement == planned.placement]
                slots = planned.placement.slots if planned.placement else 1
                ahead = sum(map(self._eta.expected, before)) / slots
                if time.monotonic() + ahead + self._eta.expected(planned) > self.until:
                    self.kept_out.append(planned)
                    return False
            self._begun[planned.index] = planned
        return True

    def keeps_all_out(self, trials: Sequence[PlannedTrial]) -> bool:
        """Return whether not even the shortest trial fits; if so, all count as kept out."""
        if self.until is None or time.monotonic() + min(map(self._eta.expected, trials)) <= self.until:
            return False
        self.kept_out += trials
        return True

    def limit(self, planned: PlannedTrial) -> tuple[float, float] | None:
        """Return time.monotonic() at which the budget ends, and how many seconds the trial may take even then.

        Until a trial has ended, estimates may be far too short for this machine as busy as it is; so that something is
        measured, the first may take longer. None without a budget, and on a cluster, whose nodes have clocks of their
        own.
        """
        if not self.until or not self._here:
            return None
        return self.until, max(PATIENCE * self._eta.expected(planned), self._least)

    def ended(self, planned: PlannedTrial) -> None:
        with self._lock:
            self._least = 0.0
            self._begun.pop(planned.index, None)

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C."""
        if self.closed:
            raise KeyboardInterrupt
        self.closed = True
        self._on_close()
