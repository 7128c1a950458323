"""How long the device is busy in each phase of a step, and how long it is idle, from traced steps.

A kernel or copy belongs to the phase in which the host launched it. The profiler records the driver call behind each,
so this holds for any launching thread, compiled code and CUDA graphs. Only driver calls are traced, not operators, to
keep the overhead small. No wall time is taken from traced steps: tracing delays launches, but not the kernels' own
durations.
"""

import os
import re
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from torch.profiler import ProfilerActivity, profile

from lmsweep.trials.machine.gpu.accelerator import activity
from lmsweep.trials.machine.torch_private import DeviceType, KinetoEvent
from lmsweep.trials.profiling.events import DeviceEvent
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.timing.clock import EventClock

LEAST_STEPS, MOST_STEPS = 2, 10
"""Number of traced steps. A 95 % interval of the median needs six; with fewer, device time still varies little."""
TRACED_SHARE = 0.15
"""Share of a trial's seconds that tracing may take, in addition to the first LEAST_STEPS steps."""
READING_FACTOR = 2.0
"""Time to trace a step and read its events, over the time of the traced step."""
DRIVER_CALL = re.compile(r"(cuda|cu|hip|ze|ur)[A-Z]")
"""Names of calls to the CUDA, HIP, Level Zero or SYCL drivers; names of operators start with their library."""


class TracedClock(EventClock):
    """A clock of the device that also notes when the host set each mark, by the clock of the profiler's events."""

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        self.marks: list[list[int]] = []
        """For each iteration in order, time.time_ns() of its marks."""

    def start(self) -> None:
        self.marks.append([])
        super().start()

    def mark(self) -> None:
        super().mark()
        # Noted after the mark is enqueued: everything launched later belongs to the next phase.
        self.marks[-1].append(time.time_ns())


@dataclass(frozen=True, kw_only=True)
class DeviceTime:
    """How long the device was busy and idle in one iteration, in seconds."""

    phases: tuple[float, ...]
    """For each phase: seconds in which at least one kernel or copy of the phase ran."""
    step: float
    """Seconds in which at least one kernel or copy of any phase ran."""
    gap: float
    """Idle from the first mark to the last mark or the end of the last kernel, whichever is later."""
    work: list[DeviceEvent]
    """The kernels and copies of all phases."""


def trace_device(run: Callable[[TracedClock], object], *, device_type: str, trial_seconds: float) -> list[DeviceTime]:
    """Trace LEAST_STEPS to MOST_STEPS calls of `run`, which each time one iteration with the given clock. Tracing
    stays within TRACED_SHARE of the trial, which has taken `trial_seconds` so far. Empty if the profiler saw no device
    activity or cannot trace this device. CUPTI, which slows every launch, is unloaded at the end."""
    seen = activity(device_type)
    if seen is None:
        return []
    os.environ["TEARDOWN_CUPTI"] = "1"
    clock = TracedClock(device_type)
    budget = TRACED_SHARE / (1 - TRACED_SHARE) * trial_seconds  # TRACED_SHARE of the sum of both
    with _only_calls_traced(seen) as trace:
        run(clock)  # left out: in a quarter of the trials, it takes 0.4 to 1.8 % longer
        left_out = len(clock.marks)
        began = time.perf_counter()
        for steps in range(1, MOST_STEPS + 1):
            run(clock)
            one_more = (time.perf_counter() - began) / steps * (steps + 1)  # seconds of all, with another step
            if steps >= LEAST_STEPS and READING_FACTOR * one_more > budget:
                break
    assert trace.profiler is not None and trace.profiler.kineto_results is not None, "the profiler has run"
    return device_times(trace.profiler.kineto_results.events(), clock.marks)[left_out:]


@contextmanager
def _only_calls_traced(seen: ProfilerActivity) -> Iterator[profile]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning: Profiler clears events")  # there is only one cycle
        with profile(activities=[seen]) as trace:
            yield trace


def device_times(events: Iterable[KinetoEvent], marks: Sequence[Sequence[int]]) -> list[DeviceTime]:
    """Device time of each iteration, from the profiler's raw events; empty if there are no device events. marks: of
    each iteration, in nanoseconds; each but the last begins a phase."""
    of_host: list[KinetoEvent] = []
    ran: list[DeviceEvent] = []
    for event in events:
        if event.device_type() == DeviceType.CPU:
            of_host.append(event)
        elif not event.is_user_annotation():  # the device's copy of a range, which spans its kernels
            ran.append(device_event(event))
    if not ran:
        return []
    launched = _launched(of_host, {one.call for one in ran})
    times = list(chain(*marks))
    begins = [(i, phase) for i, of_iteration in enumerate(marks) for phase in range(len(of_iteration))]
    work: dict[tuple[int, int], list[DeviceEvent]] = {}  # iteration and phase -> what was launched in it
    for one in ran:
        marks_before = bisect_right(times, launched.get(one.call, one.start))
        if marks_before:
            work.setdefault(begins[marks_before - 1], []).append(one)
    # The last mark of an iteration begins no phase, so what is launched between iterations is left out.
    return [
        _device_time([work.get((i, phase), []) for phase in range(len(of_iteration) - 1)], of_iteration)
        for i, of_iteration in enumerate(marks)
    ]


def device_event(event: KinetoEvent) -> DeviceEvent:
    start = event.start_ns()
    return DeviceEvent(
        name=event.name(),
        start=start,
        end=start + event.duration_ns(),
        operator=event.linked_correlation_id(),
        call=event.correlation_id(),
        stream=event.device_resource_id(),
    )


def _launched(events: Iterable[KinetoEvent], calls: Set[int]) -> dict[int, int]:
    """When each of these driver calls began, in nanoseconds. Most calls launch nothing, so their names are not read."""
    return {
        call: event.start_ns()
        for event in events
        if (call := event.correlation_id()) in calls and DRIVER_CALL.match(event.name())
    }


def _device_time(phases: Sequence[Sequence[DeviceEvent]], marks: Sequence[int]) -> DeviceTime:
    """The device time of an iteration. phases: the kernels and copies of each."""
    work = list(chain(*phases))
    worked = union_length((one.start, one.end) for one in work)
    end = max([marks[-1], *(one.end for one in work)])
    return DeviceTime(
        phases=tuple(union_length((one.start, one.end) for one in phase) / 1e9 for phase in phases),
        step=worked / 1e9,
        gap=(end - marks[0] - worked) / 1e9,
        work=work,
    )


def device_rows(phases: Sequence[str], times: Sequence[DeviceTime]) -> Iterator[Measurement]:
    """Rows of device time: one for each phase, one for the step, and one for the idle gap; null if nothing was seen."""
    columns = {(phase, "device_time"): [one.phases[i] for one in times] for i, phase in enumerate(phases)}
    columns["step", "device_time"] = [one.step for one in times]
    columns["step", "device_gap"] = [one.gap for one in times]
    for (phase, metric), samples in columns.items():
        yield device_row(phase, metric, samples)


def device_row(
    phase: str, metric: str, samples: Sequence[float], why: str = "the profiler saw no kernel"
) -> Measurement:
    """A row of device times in seconds, or of the reason why there are none."""
    known = tuple(samples) or None
    return Measurement(phase=phase, metric=metric, unit="s", samples=known, reason=None if known else why)


def union_length(intervals: Iterable[tuple[int, int]]) -> int:
    """Length of the union of the intervals (begin, end), in their unit."""
    covered, ordered = 0, sorted(intervals)
    reached = ordered[0][0] if ordered else 0
    for begin, end in ordered:
        covered += max(0, end - max(begin, reached))
        reached = max(end, reached)
    return covered
