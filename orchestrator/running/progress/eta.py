"""Estimates the time left in a run, from the trials that are done, running and left on each device.

Overhead and iterations are corrected separately: a slow host prolongs the set-up of a trial, not its work on the GPU.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimate, Took

Parts = NDArray[np.float64]
"""Seconds of overhead, and of iterations."""


class Running(NamedTuple):
    began: float
    """time.monotonic() at its start."""
    parts: Parts
    """Estimated seconds of its parts."""
    takes_slots: float = 1.0
    """How many slots of its device it takes."""


@dataclass(kw_only=True)
class DeviceEta:
    """The trials of one device. Seconds are summed over trials."""

    name: str
    slots: int
    """The most of its trials that can run at once, such as 4 of one rank on 4 GPUs."""
    running: dict[int, Running]
    """Index of a running trial in the plan -> its estimate."""
    done: int = 0
    failed: int = 0
    left: int = 0
    """Trials that have not started."""
    parts_left: Parts = field(default_factory=lambda: np.zeros(2))
    """Estimates of the trials that have not started, times the slots that each takes: slot-seconds."""
    estimated: Parts = field(default_factory=lambda: np.zeros(2))
    """Estimates of the trials that succeeded."""
    taken: Parts = field(default_factory=lambda: np.zeros(2))
    """What the trials that succeeded took."""

    def corrected(self, parts: Parts, trials: int = 1) -> float:
        """Return the estimated seconds, or slot-seconds, of so many trials, corrected by those that succeeded.

        The factors are what these took over what was estimated. One imaginary trial that takes just its estimate is
        counted among them, so that the first real one does not decide alone. It is as long as the mean of those that
        succeeded or, if that is longer, of those asked about: short trials say little about long ones.
        """
        mean_done, mean_asked = self.estimated / max(self.done, 1), parts / max(trials, 1)
        imaginary = np.maximum(mean_done, mean_asked)
        factors = np.divide(self.taken + imaginary, self.estimated + imaginary, out=np.ones(2), where=imaginary > 0)
        return float(parts @ factors)

    def forget(self, parts: Parts) -> None:
        """Take a trial from those that have not started. parts: its estimate, times its slots."""
        self.left -= 1
        self.parts_left = self.parts_left - parts

    def seconds_left(self, now: float) -> float:
        rest = [max(0.0, self.corrected(one.parts) - (now - one.began)) for one in self.running.values()]
        slot_seconds = sum(one.takes_slots * seconds for one, seconds in zip(self.running.values(), rest, strict=True))
        slot_seconds += self.corrected(self.parts_left, self.left)
        # No less than any running trial needs; 0, as rounding may leave `parts_left` a little below.
        return max([0.0, slot_seconds / self.slots, *rest])


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
        CPU takes all cores, so that no other runs beside it. until: time.monotonic() at which the run ends."""
        self.alone = alone
        self._until = until
        self._parts = {
            index: np.array([one.seconds - one.iterating, one.iterating]) for index, one in estimates.items()
        }
        self._lock = RLock()
        self.devices: dict[str, DeviceEta] = {}
        for planned in trials:
            name = planned.environment.device_name
            device = self.devices.setdefault(name, DeviceEta(name=name, slots=1, running={}))
            device.slots = max(device.slots, planned.slots)
            device.left += 1
        for planned in trials:  # now the slots of each device are known
            device = self.devices[planned.environment.device_name]
            device.parts_left = device.parts_left + self._slots_of(planned) * self._parts[planned.index]

    def snapshot(self) -> list[DeviceEta]:
        """Return the devices as they are now; other threads do not change these copies."""
        with self._lock:
            return [replace(device, running=dict(device.running)) for device in self.devices.values()]

    def started(self, planned: PlannedTrial) -> None:
        with self._lock:
            device = self.devices[planned.environment.device_name]
            parts = self._parts[planned.index]
            if planned.index not in device.running:  # else it runs again, after its node died
                device.forget(self._slots_of(planned) * parts)
            device.running[planned.index] = Running(time.monotonic(), parts, self._slots_of(planned))

    def ended(self, planned: PlannedTrial, took: Took | None) -> None:
        """`took` is what its rows say; None if it failed, which says nothing about other trials."""
        with self._lock:
            device = self.devices[planned.environment.device_name]
            if planned.index not in device.running:  # every node that could hold it died before it began
                self.started(planned)
            parts = device.running.pop(planned.index).parts
            if took is None:
                device.failed += 1
                return
            device.done += 1
            device.estimated = device.estimated + parts
            device.taken = device.taken + took

    def expected(self, planned: PlannedTrial) -> float:
        with self._lock:
            return self.devices[planned.environment.device_name].corrected(self._parts[planned.index])

    def needed(self, trials: Iterable[PlannedTrial]) -> float:
        """Return the corrected estimate of these trials, side by side where there is room, in seconds."""
        seconds: dict[str, float] = {}
        for one in trials:
            name = one.environment.device_name
            seconds[name] = seconds.get(name, 0.0) + self.expected(one) / one.slots  # so many run at once
        return sum(seconds.values()) if self.alone else max(seconds.values(), default=0.0)

    def still_expected(self, planned: PlannedTrial) -> float:
        """Return the corrected estimate of what is left of a trial, in seconds."""
        with self._lock:
            running = self.devices[planned.environment.device_name].running.get(planned.index)
            passed = time.monotonic() - running.began if running else 0.0
            return max(0.0, self.expected(planned) - passed)

    def left_out(self, planned: PlannedTrial) -> None:
        """Forget a trial that will not begin."""
        with self._lock:
            self.devices[planned.environment.device_name].forget(self._slots_of(planned) * self._parts[planned.index])

    def seconds_left(self) -> float:
        with self._lock:
            now = time.monotonic()
            left = [device.seconds_left(now) for device in self.devices.values()]
            return self.within_time(sum(left) if self.alone else max(left, default=0.0), now)

    def within_time(self, seconds: float, now: float) -> float:
        """Return the seconds, but no more than until the run ends."""
        return seconds if self._until is None else min(seconds, max(0.0, self._until - now))

    def _slots_of(self, planned: PlannedTrial) -> float:
        """Return how many slots a trial takes: 2 of 4 GPUs if two such trials run at once (`planned.slots`)."""
        return self.devices[planned.environment.device_name].slots / planned.slots

    @property
    def running(self) -> int:
        return len(self.running_since())

    def running_since(self) -> dict[int, float]:
        """Return time.monotonic() at the start of each running trial, by its index."""
        with self._lock:
            return {index: one.began for device in self.devices.values() for index, one in device.running.items()}
