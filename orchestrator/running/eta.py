"""The pace of a run: what is done and left on each device, and for how long still, by what trials have taken so far.

Overhead and iterations go at a pace each: on a slow host a trial's process and set-up take longer, and its iterations
on the GPU do not.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimate


@dataclass(kw_only=True)
class Correction:
    """How much longer one part of trials takes than expected, in seconds of those that have ended well."""

    expected: float = 0.0
    taken: float = 0.0

    def factor(self, ended: int) -> float:
        """One trial as expected is added, so that the first does not decide alone."""
        usual = self.expected / ended if ended else 0.0
        return (self.taken + usual) / (self.expected + usual) if usual else 1.0


@dataclass(kw_only=True)
class DevicePace:
    """The trials of one device. Seconds are those of trials, by the clock."""

    name: str
    slots: int
    """Trials that run side by side."""
    running: dict[int, tuple[float, float, float]]
    """id() of a trial -> time.monotonic() when it started, and the seconds of overhead and of iterations that were
    expected of it."""
    done: int = 0
    """Ended well."""
    failed: int = 0
    left: int = 0
    """Not started."""
    overhead_left: float = 0.0
    iterating_left: float = 0.0
    """Seconds that were expected of those not started; likewise above."""
    overhead: Correction = field(default_factory=Correction)
    iterating: Correction = field(default_factory=Correction)

    def corrected(self, overhead: float, iterating: float) -> float:
        """Seconds that so much takes at the pace so far."""
        return overhead * self.overhead.factor(self.done) + iterating * self.iterating.factor(self.done)

    def seconds_left(self, now: float) -> float:
        """Until the last trial ends."""
        rest = [max(0.0, self.corrected(*parts) - (now - began)) for began, *parts in self.running.values()]
        return max([(self.corrected(self.overhead_left, self.iterating_left) + sum(rest)) / self.slots, *rest])


class Pace:
    """Told when trials start and end, by any thread."""

    def __init__(self, trials: Sequence[PlannedTrial], estimates: Mapping[int, Estimate]) -> None:
        self._estimates = estimates
        self._lock = RLock()
        self.devices: dict[str, DevicePace] = {}
        for planned in trials:
            name = planned.environment.device_name
            device = self.devices.setdefault(name, DevicePace(name=name, slots=1, running={}))
            device.slots = max(device.slots, planned.placement.slots if planned.placement else 1)
            device.left += 1
            overhead, iterating = self._parts(planned)
            device.overhead_left += overhead
            device.iterating_left += iterating

    def started(self, planned: PlannedTrial) -> None:
        with self._lock:
            device = self.devices[planned.environment.device_name]
            overhead, iterating = self._parts(planned)
            if id(planned) not in device.running:  # else it runs again: its node had died
                device.left -= 1
                device.overhead_left -= overhead
                device.iterating_left -= iterating
            device.running[id(planned)] = (time.monotonic(), overhead, iterating)

    def ended(self, planned: PlannedTrial, *, iterated: float | None) -> None:
        """`iterated` is the seconds of its iterations; None where it has failed, which says nothing of the others."""
        with self._lock:
            device = self.devices[planned.environment.device_name]
            if id(planned) not in device.running:  # its node died before it could begin
                self.started(planned)
            began, overhead, iterating = device.running.pop(id(planned))
            if iterated is None:
                device.failed += 1
                return
            device.done += 1
            device.overhead.expected += overhead
            device.overhead.taken += max(0.0, time.monotonic() - began - iterated)
            device.iterating.expected += iterating
            device.iterating.taken += iterated

    def expected(self, planned: PlannedTrial) -> float:
        """Seconds that a trial will take, at the pace so far."""
        with self._lock:
            return self.devices[planned.environment.device_name].corrected(*self._parts(planned))

    def seconds_left(self) -> float:
        """Until the last trial ends."""
        with self._lock:
            now = time.monotonic()
            return max((device.seconds_left(now) for device in self.devices.values()), default=0.0)

    @property
    def running(self) -> int:
        with self._lock:
            return sum(len(device.running) for device in self.devices.values())

    def _parts(self, planned: PlannedTrial) -> tuple[float, float]:
        """Seconds of overhead and of iterations that are expected of a trial."""
        estimate = self._estimates[id(planned)]
        return estimate.seconds - estimate.iterating, estimate.iterating
