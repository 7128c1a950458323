"""How long the device worked in each phase, and how long it waited: from traced steps, which no wall time is taken of.

A kernel or copy belongs to the phase in which the host launched it, by whatever thread, from compiled code or as part
of a CUDA graph: the profiler knows the call to the driver that each came from. Only such calls are traced, no
operators, so that the steps stay as they are; what the device does in a phase is the same however late it is told to.
"""

import os
import re
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.timing.clock import CudaClock

LEAST_STEPS, MOST_STEPS = 2, 10
"""Traced steps; six and more give an interval of 95 %, the device's time hardly varies."""
SHARE = 0.15
"""Of a trial's seconds, what its traced steps may take in all, while there are more than LEAST_STEPS."""
READING = 2.0
"""Seconds until a step is read, for each second in which it is traced."""
IDLE_SHARE = 0.05
"""Of the median step, how long the device may wait before the host counts as the limit."""

CALL = re.compile(r"(cuda|cu|hip)[A-Z]")
"""Names of calls to the driver and its runtime; operators have their library before the name."""


class TracedClock(CudaClock):
    """CUDA events, and when the host set them, by the clock that the profiler's events are told in."""

    def __init__(self) -> None:
        super().__init__()
        self.intervals: list[list[int]] = []
        """Of each iteration in order, time.time_ns() of its marks."""

    def start(self) -> None:
        self.intervals.append([])
        super().start()

    def mark(self) -> None:
        super().mark()
        # Not before: the device comes to the mark when it has been told of it, and what is launched next comes later.
        self.intervals[-1].append(time.time_ns())


@dataclass(frozen=True, kw_only=True)
class DeviceTime:
    """Of one iteration, in seconds."""

    phases: tuple[float, ...]
    """In which at least one kernel or copy of each phase ran."""
    step: float
    """In which at least one of any phase did."""
    gap: float
    """In which none did, from the first mark to the last or, if that is later, to the end of the last kernel."""


def trace_device(run: Callable[[TracedClock], object], *, trial_seconds: float) -> list[DeviceTime]:
    """What the device did in each of the iterations that `run` times with this clock, from LEAST_STEPS to MOST_STEPS
    calls of it, as SHARE of a trial allows that took `trial_seconds` until now; none where the profiler saw nothing.

    What comes later in this process is launched as fast as before: CUPTI, by which the profiler looks on and which
    slows every launch while it is there, is let go of at its end.
    """
    os.environ["TEARDOWN_CUPTI"] = "1"
    clock = TracedClock()
    budget = SHARE / (1 - SHARE) * trial_seconds
    began = time.perf_counter()
    with _only_calls_traced() as trace:
        for steps in range(1, MOST_STEPS + 1):
            run(clock)
            one_more = (time.perf_counter() - began) / steps * (steps + 1)
            if steps >= LEAST_STEPS and READING * one_more > budget:
                break
    assert trace.profiler is not None and trace.profiler.kineto_results is not None, "it was entered and left"
    # The raw events: to make a FunctionEvent of each would take longer than the step.
    return device_times(trace.profiler.kineto_results.events(), clock.intervals)


@contextmanager
def _only_calls_traced() -> Iterator[profile]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning: Profiler clears events")  # of all cycles but the last; there is one
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            yield trace


def device_times(events: Iterable[Any], intervals: Sequence[Sequence[int]]) -> list[DeviceTime]:
    """What the device did in each iteration, by the profiler's raw events and the marks of the iterations, in
    nanoseconds; nothing where the events hold nothing of the device.
    """
    launched: dict[int, int] = {}
    ran: list[tuple[int, int, int]] = []
    for event in events:
        if event.device_type() == DeviceType.CUDA:
            if not event.is_user_annotation():  # the device's copy of a range
                begin = event.start_ns()
                ran.append((event.correlation_id(), begin, begin + event.duration_ns()))
        elif CALL.match(event.name()):
            launched[event.correlation_id()] = event.start_ns()
    if not ran:
        return []
    edges = [(mark, i, phase) for i, marks in enumerate(intervals) for phase, mark in enumerate(marks)]
    work: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for call, begin, end in ran:
        place = bisect_right(edges, (launched.get(call, begin), len(intervals), 0)) - 1
        if place >= 0:
            work.setdefault(edges[place][1:], []).append((begin, end))
    return [
        _device_time([work.get((i, phase), []) for phase in range(len(marks) - 1)], marks)
        for i, marks in enumerate(intervals)
    ]


def _device_time(work: Sequence[Sequence[tuple[int, int]]], marks: Sequence[int]) -> DeviceTime:
    """`work`: the intervals of what ran for each phase."""
    whole = [interval for of_phase in work for interval in of_phase]
    worked = union_length(whole)
    end = max([marks[-1], *(end for _, end in whole)])
    return DeviceTime(
        phases=tuple(union_length(of_phase) / 1e9 for of_phase in work),
        step=worked / 1e9,
        gap=(end - marks[0] - worked) / 1e9,
    )


def device_rows(phases: Sequence[str], times: Sequence[DeviceTime]) -> Iterator[Measurement]:
    """A row for each phase, one for the step and one for what it waited; null where nothing was seen."""
    columns = {(phase, "device_time"): [one.phases[i] for one in times] for i, phase in enumerate(phases)}
    columns["step", "device_time"] = [one.step for one in times]
    columns["step", "device_gap"] = [one.gap for one in times]
    for (phase, metric), samples in columns.items():
        yield device_row(phase, metric, samples)


def device_row(phase: str, metric: str, samples: Sequence[float]) -> Measurement:
    reason = None if samples else "the profiler saw no kernel"
    return Measurement(phase=phase, metric=metric, unit="s", samples=tuple(samples) or None, reason=reason)


def is_host_bound(device: Sequence[float], wall: Sequence[float]) -> bool:
    """Whether the device waited for more than IDLE_SHARE of the median step; False where that is not known.

    The wall times are those of other iterations, which were not traced.
    """
    return bool(device) and median(device) < (1 - IDLE_SHARE) * median(wall)


def union_length(intervals: Iterable[tuple[int, int]]) -> int:
    """How much the intervals (begin, end) cover together."""
    covered = 0
    reached: int | None = None
    for begin, end in sorted(intervals):
        start = begin if reached is None else max(begin, reached)
        covered += max(0, end - start)
        reached = end if reached is None else max(end, reached)
    return covered
