"""The pace of a run: what is done and left on each device, and for how long still, by what trials have taken so far."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import RLock

from orchestrator.estimate import Estimate
from orchestrator.plan import PlannedTrial


@dataclass(kw_only=True)
class DevicePace:
    """The trials of one device. Seconds are those of trials, by the clock."""

    name: str
    slots: int
    """Trials that run side by side."""
    running: dict[int, tuple[float, float]]
    """id() of a trial -> time.monotonic() when it started, and the seconds that were expected of it."""
    done: int = 0
    """Ended well."""
    failed: int = 0
    left: int = 0
    """Not started."""
    expected_left: float = 0.0
    """Seconds that were expected of those not started."""
    expected_ended: float = 0.0
    """Seconds that were expected of those that have ended."""
    taken: float = 0.0
    """Seconds that these took."""

    @property
    def slowness(self) -> float:
        """How much longer trials take than expected; one trial as expected is added, so that the first does not decide
        alone.
        """
        ended = self.done + self.failed
        usual = self.expected_ended / ended if ended else 1.0
        return (self.taken + usual) / (self.expected_ended + usual) if usual else 1.0

    def seconds_left(self, now: float) -> float:
        """Until the last trial ends."""
        rest = [max(0.0, expected * self.slowness - (now - began)) for began, expected in self.running.values()]
        return max([(self.expected_left * self.slowness + sum(rest)) / self.slots, *rest])


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
            device.expected_left += estimates[id(planned)].seconds

    def started(self, planned: PlannedTrial) -> None:
        with self._lock:
            device = self.devices[planned.environment.device_name]
            expected = self._estimates[id(planned)].seconds
            if id(planned) not in device.running:  # else it runs again: its node had died
                device.left -= 1
                device.expected_left -= expected
            device.running[id(planned)] = (time.monotonic(), expected)

    def ended(self, planned: PlannedTrial, *, well: bool) -> None:
        with self._lock:
            device = self.devices[planned.environment.device_name]
            if id(planned) not in device.running:  # its node died before it could begin
                self.started(planned)
            began, expected = device.running.pop(id(planned))
            device.taken += time.monotonic() - began
            device.expected_ended += expected
            device.done += well
            device.failed += not well

    def expected(self, planned: PlannedTrial) -> float:
        """Seconds that a trial will take, at the pace so far."""
        with self._lock:
            return self._estimates[id(planned)].seconds * self.devices[planned.environment.device_name].slowness

    def seconds_left(self) -> float:
        """Until the last trial ends."""
        with self._lock:
            now = time.monotonic()
            return max((device.seconds_left(now) for device in self.devices.values()), default=0.0)

    @property
    def running(self) -> int:
        with self._lock:
            return sum(len(device.running) for device in self.devices.values())
