"""Estimates the time left in a run, from the trials that are done, running and left on each device.

Overhead and iterations are corrected separately: a slow host prolongs the set-up of a trial, not its work on the GPU.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import NamedTuple

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimate, Took


@dataclass(kw_only=True)
class Correction:
    """Measured over estimated time of one part of the trials that succeeded, in seconds."""

    estimated: float = 0.0
    taken: float = 0.0

    def factor(self, ended: int) -> float:
        """Return the ratio, with one trial as estimated added, so that the first trial does not decide alone."""
        usual = self.estimated / ended if ended else 0.0
        return (self.taken + usual) / (self.estimated + usual) if usual else 1.0


class Running(NamedTuple):
    began: float
    """time.monotonic() at its start."""
    overhead: float
    """Estimated seconds."""
    iterating: float
    """Estimated seconds."""


@dataclass(kw_only=True)
class DeviceEta:
    """The trials of one device. Seconds are estimates, summed over trials."""

    name: str
    slots: int
    running: dict[int, Running]
    """Index of a running trial in the plan -> its estimate."""
    done: int = 0
    failed: int = 0
    left: int = 0
    """Trials that have not started."""
    overhead_left: float = 0.0
    iterating_left: float = 0.0
    overhead: Correction = field(default_factory=Correction)
    iterating: Correction = field(default_factory=Correction)

    def corrected(self, overhead: float, iterating: float) -> float:
        return overhead * self.overhead.factor(self.done) + iterating * self.iterating.factor(self.done)

    def forget(self, overhead: float, iterating: float) -> None:
        """Take a trial from those that have not started."""
        self.left -= 1
        self.overhead_left -= overhead
        self.iterating_left -= iterating

    def seconds_left(self, now: float) -> float:
        rest = [
            max(0.0, self.corrected(one.overhead, one.iterating) - (now - one.began)) for one in self.running.values()
        ]
        # Rounding may leave the sums of what has not started a little below 0.
        return max([0.0, (self.corrected(self.overhead_left, self.iterating_left) + sum(rest)) / self.slots, *rest])


class Eta:
    """The estimated time left in a run. Any thread may report starts and ends of trials."""

    def __init__(
        self,
        trials: Sequence[PlannedTrial],
        estimates: Mapping[int, Estimate],
        *,
        alone: bool = False,
        until: float | None = None,
    ) -> None:
        """estimates: by the index of a trial in the plan. alone: all devices are of one machine, where a trial on the
        CPU takes all cores, so that no other runs beside it. until: time.monotonic() at which the run ends.
        """
        self.alone = alone
        self._until = until
        self._parts = {index: (one.seconds - one.iterating, one.iterating) for index, one in estimates.items()}
        """Seconds of overhead and of iterations, by the index of a trial."""
        self._lock = RLock()
        self.devices: dict[str, DeviceEta] = {}
        for planned in trials:
            name = planned.environment.device_name
            device = self.devices.setdefault(name, DeviceEta(name=name, slots=1, running={}))
            device.slots = max(device.slots, planned.placement.slots if planned.placement else 1)
            device.left += 1
            overhead, iterating = self._parts[planned.index]
            device.overhead_left += overhead
            device.iterating_left += iterating

    def started(self, planned: PlannedTrial) -> None:
        with self._lock:
            device = self.devices[planned.environment.device_name]
            overhead, iterating = self._parts[planned.index]
            if planned.index not in device.running:  # else it runs again, after its node died
                device.forget(overhead, iterating)
            device.running[planned.index] = Running(time.monotonic(), overhead, iterating)

    def ended(self, planned: PlannedTrial, took: Took | None) -> None:
        """`took` is what its rows say; None if it failed, which says nothing about other trials."""
        with self._lock:
            device = self.devices[planned.environment.device_name]
            if planned.index not in device.running:  # its node died before it could begin
                self.started(planned)
            _, overhead, iterating = device.running.pop(planned.index)
            if took is None:
                device.failed += 1
                return
            device.done += 1
            device.overhead.estimated += overhead
            device.overhead.taken += took.overhead
            device.iterating.estimated += iterating
            device.iterating.taken += took.iterating

    def expected(self, planned: PlannedTrial) -> float:
        """Return the corrected estimate of a trial, in seconds."""
        with self._lock:
            return self.devices[planned.environment.device_name].corrected(*self._parts[planned.index])

    def still_expected(self, planned: PlannedTrial) -> float:
        """Return the corrected estimate of what is left of a trial, in seconds."""
        with self._lock:
            running = self.devices[planned.environment.device_name].running.get(planned.index)
            passed = time.monotonic() - running.began if running else 0.0
            return max(0.0, self.expected(planned) - passed)

    def left_out(self, planned: PlannedTrial) -> None:
        """Forget a trial that will not begin."""
        with self._lock:
            self.devices[planned.environment.device_name].forget(*self._parts[planned.index])

    def seconds_left(self) -> float:
        with self._lock:
            now = time.monotonic()
            left = [device.seconds_left(now) for device in self.devices.values()]
            return self.within_time(sum(left) if self.alone else max(left, default=0.0), now)

    def within_time(self, seconds: float, now: float) -> float:
        """Return the seconds, but no more than until the run ends."""
        return seconds if self._until is None else min(seconds, max(0.0, self._until - now))

    @property
    def running(self) -> int:
        with self._lock:
            return sum(len(device.running) for device in self.devices.values())

    def running_since(self) -> dict[int, float]:
        """Return time.monotonic() at the start of each running trial, by its index."""
        with self._lock:
            return {index: one.began for device in self.devices.values() for index, one in device.running.items()}
