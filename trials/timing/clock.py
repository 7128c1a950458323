"""Clocks: when each phase of an iteration began and ended, as the device saw it.

A phase is an interval between two marks of the same iteration; nothing is ever subtracted from anything else.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, kw_only=True)
class Phase:
    name: str
    """forward, backward, optimizer, ..."""
    run: Callable[[], object]
    """Does the phase's work, or enqueues it where the device is asynchronous."""


@dataclass(frozen=True, kw_only=True)
class Iteration:
    phases: tuple[float, ...]
    """Seconds of each phase, in order."""
    step: float
    """Seconds from the beginning of the first phase to the end of the last."""
    enqueue: float | None
    """Seconds the host needed to launch the work; None where host and device are one."""


class Clock(Protocol):
    def start(self) -> None:
        """Waits for the device to be idle and marks the beginning of the first phase."""

    def mark(self) -> None:
        """Marks the end of a phase and the beginning of the next."""

    def stop(self) -> Iteration:
        """Waits for the device and returns what the marks say."""


class HostClock:
    """The CPU's clock. With `synchronize`, each mark first waits for a device that has no usable clock of its own."""

    def __init__(self, synchronize: Callable[[], None] | None = None) -> None:
        self._synchronize = synchronize
        self._marks: list[int] = []

    def start(self) -> None:
        self._marks = []
        self.mark()

    def mark(self) -> None:
        if self._synchronize:
            self._synchronize()
        self._marks.append(time.perf_counter_ns())

    def stop(self) -> Iteration:
        phases = tuple((end - begin) / 1e9 for begin, end in itertools.pairwise(self._marks))
        return Iteration(phases=phases, step=(self._marks[-1] - self._marks[0]) / 1e9, enqueue=None)


class CudaClock:
    """CUDA events. Nothing synchronizes between the marks, so the host may run ahead as it does in real training."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self._host_start = 0

    def start(self) -> None:
        torch.cuda.synchronize()
        self._events = []
        self.mark()
        self._host_start = time.perf_counter_ns()

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def stop(self) -> Iteration:
        enqueue = (time.perf_counter_ns() - self._host_start) / 1e9
        torch.cuda.synchronize()
        events = self._events
        return Iteration(
            phases=tuple(begin.elapsed_time(end) / 1e3 for begin, end in itertools.pairwise(events)),
            step=events[0].elapsed_time(events[-1]) / 1e3,
            enqueue=enqueue,
        )


def clock_for(device_type: str) -> Clock:
    """The clock to time work on this kind of device with."""
    if device_type == "cuda":
        return CudaClock()
    if device_type == "mps":
        return HostClock(torch.mps.synchronize)
    return HostClock()


def time_iteration(phases: Sequence[Phase], clock: Clock) -> Iteration:
    """Runs the phases once, one after the other."""
    clock.start()
    for phase in phases:
        phase.run()
        clock.mark()
    return clock.stop()


def synchronize(device_type: str) -> None:
    """Waits until the device has finished everything it was given."""
    if device_type == "cuda":
        torch.cuda.synchronize()
    elif device_type == "mps":
        torch.mps.synchronize()
