"""How long the GPU was busy in a step: from a trace of one, whose wall time is never used."""

from collections.abc import Callable, Iterable

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from trials.measurement import Measurement


def busy_row(device_type: str, run: Callable[[], object]) -> Iterable[Measurement]:
    """The seconds of one run in which at least one kernel or copy ran on the GPU; no row for a CPU, which is its own
    host.
    """
    if device_type == "cpu":
        return
    if device_type != "cuda":
        unknown = f"PyTorch cannot trace what runs on device {device_type}"
        yield Measurement(phase="step", metric="busy_time", unit="s", samples=None, reason=unknown)
        return
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        run()
    # The raw events: to make a FunctionEvent of each would take longer than the step.
    intervals = [
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in trace.profiler.kineto_results.events()
        if event.device_type() == DeviceType.CUDA and not event.is_user_annotation()
    ]
    samples = (union_length(intervals) / 1e9,) if intervals else None
    reason = None if intervals else "the profiler saw no kernel"
    yield Measurement(phase="step", metric="busy_time", unit="s", samples=samples, reason=reason)


def union_length(intervals: Iterable[tuple[int, int]]) -> int:
    """How much the intervals (begin, end) cover together."""
    covered = 0
    reached: int | None = None
    for begin, end in sorted(intervals):
        start = begin if reached is None else max(begin, reached)
        covered += max(0, end - start)
        reached = end if reached is None else max(end, reached)
    return covered
