"""Clocks: when each phase of an iteration began and ended on the device.

The time of a phase is the interval between two marks of the same iteration. Times of different runs are never
subtracted from each other.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from lmsweep.trials.machine.gpu.accelerator import device_module, has_events, synchronize


@dataclass(frozen=True, kw_only=True)
class Phase:
    name: str
    """forward, backward, optimizer, ..."""
    run: Callable[[], object]
    """Runs the phase; on an asynchronous device, enqueues it."""


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """The times of one iteration, in seconds."""

    phases: tuple[float, ...]
    step: float
    """From the beginning of the first phase to the end of the last."""
    enqueue: float | None
    """What the host took to launch the work; None if the device is the host."""


class HostClock:
    """The host's clock. With `synchronize`, each mark first waits for a device that has no usable clock of its own."""

    def __init__(self, synchronize: Callable[[], None] | None = None) -> None:
        self._synchronize = synchronize
        self._marks: list[int] = []

    def start(self) -> None:
        """Wait until the device is idle, and mark the beginning of the first phase."""
        self._marks = []
        self.mark()

    def mark(self) -> None:
        if self._synchronize:
            self._synchronize()
        self._marks.append(time.perf_counter_ns())

    def stop(self) -> Iteration:
        """Wait for the device and return the times between the marks."""
        phases = tuple((end - begin) / 1e9 for begin, end in itertools.pairwise(self._marks))
        return Iteration(phases=phases, step=(self._marks[-1] - self._marks[0]) / 1e9, enqueue=None)


class EventClock:
    """Events of the device. Marks do not synchronize, so the host runs ahead as in real training."""

    def __init__(self, device_type: str) -> None:
        self._device = device_module(device_type)
        self._events: list[torch.cuda.Event] = []
        self._host_start = 0

    def start(self) -> None:
        self._device.synchronize()
        self._events = []
        self.mark()
        self._host_start = time.perf_counter_ns()

    def mark(self) -> None:
        event = self._device.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def stop(self) -> Iteration:
        enqueue = (time.perf_counter_ns() - self._host_start) / 1e9
        self._device.synchronize()
        events = self._events
        return Iteration(
            phases=tuple(begin.elapsed_time(end) / 1e3 for begin, end in itertools.pairwise(events)),
            step=events[0].elapsed_time(events[-1]) / 1e3,
            enqueue=enqueue,
        )


Clock = HostClock | EventClock
"""Times one iteration at a time: `start`, a `mark` after each phase, `stop`."""


def clock_for(device_type: str) -> Clock:
    """Return the clock for this kind of device: its own events, or the host's clock, which first waits for it."""
    if has_events(device_type):
        return EventClock(device_type)
    return HostClock() if device_type == "cpu" else HostClock(partial(synchronize, device_type))


def time_iteration(phases: Sequence[Phase], clock: Clock) -> Iteration:
    """Run the phases once, in order, and return their times; phases of one name are one, with their total time."""
    clock.start()
    for phase in phases:
        phase.run()
        clock.mark()
    taken = clock.stop()
    return replace(taken, phases=sums_by_name(phases, taken.phases))


def sums_by_name(phases: Sequence[Phase], seconds: Sequence[float]) -> tuple[float, ...]:
    """Return the sum of the seconds of the phases of each name, in the order of `phase_names`."""
    by_name = dict.fromkeys(phase_names(phases), 0.0)
    for phase, each in zip(phases, seconds, strict=True):
        by_name[phase.name] += each
    return tuple(by_name.values())


def phase_names(phases: Sequence[Phase]) -> tuple[str, ...]:
    """Return the names of the phases in the order in which each first runs."""
    return tuple(dict.fromkeys(phase.name for phase in phases))
