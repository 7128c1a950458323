"""What a trace of one step tells of its communication: how long it went on, and how much of that beside computing."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from lmsweep.trials.profiling.device_time import union_length

SETTLE_SECONDS = 0.01
"""How long gloo's threads have, after a run, to write the ends of their last works into the trace."""


@dataclass(frozen=True, kw_only=True)
class Communication:
    """Of one rank in one step."""

    collectives: int
    """Collectives that it took part in: kernels of NCCL, calls of gloo."""
    busy: float
    """Seconds in which at least one was under way; waiting for a slower rank is part of it."""
    overlap: float
    """Seconds of these in which the rank also computed."""
    worked: float
    """Seconds in which it communicated, computed or did both."""


def trace_communication(device_type: str, run: Callable[[], object]) -> Communication:
    """Traces one run; its wall time is never used.

    The run must wait for every collective that it begins: gloo's threads write into the trace when a work ends, also
    where the trace has been freed by then, and the process crashes of it later and elsewhere (PyTorch 2.13).
    """
    on_cuda = device_type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_cuda else ProfilerActivity.CPU]) as trace:
        run()
        if not on_cuda:
            time.sleep(SETTLE_SECONDS)  # DistributedDataParallel goes on a moment before a work has ended
    # The raw events: to make a FunctionEvent of each would take longer than the step.
    events = trace.profiler.kineto_results.events()
    return on_gpu(events) if on_cuda else on_cpu(events)


def on_gpu(events: Iterable[Any]) -> Communication:
    """NCCL's kernels (ncclDevKernel_AllReduce_..., ncclKernel_... in older versions) against every other kernel and
    copy.
    """
    ran = [event for event in events if event.device_type() == DeviceType.CUDA and not event.is_user_annotation()]
    collectives = [event for event in ran if event.name().startswith("nccl")]
    others = [event for event in ran if not event.name().startswith("nccl")]
    return _summary(len(collectives), collectives, others)


def on_cpu(events: Iterable[Any]) -> Communication:
    """gloo's work, which threads of its own do, against PyTorch's operators."""
    named = [(event.name(), event) for event in events]
    calls = sum(name.startswith("c10d::") for name, _ in named)
    collectives = [event for name, event in named if name.startswith("gloo:")]
    return _summary(calls, collectives, [event for name, event in named if name.startswith("aten::")])


def _summary(count: int, collectives: list[Any], others: list[Any]) -> Communication:
    communicating, computing = _intervals(collectives), _intervals(others)
    busy, computed = union_length(communicating), union_length(computing)
    worked = union_length(communicating + computing)
    return Communication(
        collectives=count,
        busy=busy / 1e9,
        overlap=(busy + computed - worked) / 1e9,
        worked=worked / 1e9,
    )


def _intervals(events: list[Any]) -> list[tuple[int, int]]:
    return [(event.start_ns(), event.start_ns() + event.duration_ns()) for event in events]
