"""The gate: which trials may still begin, by the time that a run may take and by whether it was interrupted."""

import signal
import time
from collections.abc import Callable, Sequence
from threading import Lock
from types import FrameType
from typing import Any, Self

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.eta import Pace


class Gate:
    """Lets trials begin until Ctrl-C closes it; a second one raises KeyboardInterrupt. One thread asks, another tells
    what has ended.
    """

    def __init__(self, pace: Pace, *, until: float | None, on_close: Callable[[], None]) -> None:
        """`until` is the time.monotonic() by which all is to have ended; None for whenever that is."""
        self._pace = pace
        self._until = until
        self._on_close = on_close
        self._lock = Lock()
        self._begun: dict[int, PlannedTrial] = {}
        self.closed = False
        """Whether Ctrl-C was pressed."""
        self.kept_out: list[PlannedTrial] = []
        """Trials for which there was no time."""

    @property
    def is_timed(self) -> bool:
        """Whether the run may take only so long."""
        return self._until is not None

    def admits(self, planned: PlannedTrial) -> bool:
        """Whether the trial may begin; one that may is taken to do so."""
        if self.closed:
            return False
        with self._lock:
            if self._until is not None:
                before = [one for one in self._begun.values() if one.placement == planned.placement]
                slots = planned.placement.slots if planned.placement else 1
                ahead = sum(map(self._pace.expected, before)) / slots
                if time.monotonic() + ahead + self._pace.expected(planned) > self._until:
                    self.kept_out.append(planned)
                    return False
            self._begun[id(planned)] = planned
        return True

    def keeps_all_out(self, trials: Sequence[PlannedTrial]) -> bool:
        """Whether there is no time left for any of the trials; if so, all count as kept out."""
        if self._until is None or time.monotonic() + min(map(self._pace.expected, trials)) <= self._until:
            return False
        self.kept_out += trials
        return True

    def ended(self, planned: PlannedTrial) -> None:
        with self._lock:
            self._begun.pop(id(planned), None)

    def __enter__(self) -> Self:
        self._before: Any = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.closed:
            raise KeyboardInterrupt
        self.closed = True
        self._on_close()
