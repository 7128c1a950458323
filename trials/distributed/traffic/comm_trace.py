"""How long a step communicates, and how much of that overlaps with computation, from a trace of one step."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from torch.profiler import ProfilerActivity, profile

from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep
from lmsweep.trials.distributed.traffic.block_waits import Needed, kind_of, needed_on_cpu, needed_on_gpu
from lmsweep.trials.machine.gpu.accelerator import synchronize
from lmsweep.trials.machine.torch_private import DeviceType
from lmsweep.trials.profiling.device_time import union_length
from lmsweep.trials.profiling.kineto import KinetoEvent
from lmsweep.trials.profiling.torch_trace import events_of, ranges_traced
from lmsweep.trials.spec.words import Collective

SETTLE_SECONDS = 0.01
"""Time, after a run, for gloo's threads to write the end of their last operations into the trace."""


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Communication of one rank in one step, seconds."""

    busy: float
    """With at least one collective in flight, including time spent waiting for a slower rank."""
    overlap: float
    """Of `busy`, in which the rank also computed."""


@dataclass(frozen=True, kw_only=True)
class Communication(Busy):
    """Communication of all kinds."""

    collectives: int
    """Collectives that the rank took part in: kernels of NCCL, calls of gloo."""
    worked: float
    """Seconds in which the rank communicated, computed, or both."""
    kinds: Mapping[Collective, Busy] = field(default_factory=dict)
    """The parts of `busy` and `overlap` by kind of collective. gloo runs a reduce-scatter as an all-reduce."""
    needed: tuple[Needed, ...] = ()
    """With `fully_shard`, the collectives that the rank's computation needed, in order."""


def trace_communication(step: DataParallelStep) -> Communication:
    """Trace one synchronized step; all ranks must call it at the same time. Its wall time is never used. The run waits
    for every collective that it starts. gloo's threads write into the trace when an operation ends, even if the trace
    has been freed by then; the process then crashes later, in unrelated code (PyTorch 2.13)."""
    device_type = step.config.device_type
    step.align()

    def run() -> None:
        for phase in step.phases():
            phase.run()
        synchronize(device_type)

    if device_type == "cuda":
        events = ranges_traced(run, cuda=True)
        found = replace(on_gpu(events), needed=tuple(needed_on_gpu(*events_of(events, {}))))
    else:
        with profile(activities=[ProfilerActivity.CPU]) as trace:
            run()
            time.sleep(SETTLE_SECONDS)  # DistributedDataParallel returns a moment before its last operation has ended
        # Raw events: converting each to a FunctionEvent would take longer than the step.
        events = trace.profiler.kineto_results.events()
        found = replace(on_cpu(events), needed=tuple(needed_on_cpu(events_of(events, {})[0])))
    step.forget_gradients()
    return found


def on_gpu(events: Iterable[KinetoEvent]) -> Communication:
    """Communication on a GPU: kernels of NCCL, ncclDevKernel_AllReduce_..., against all other kernels and copies."""
    ran = [event for event in events if event.device_type() == DeviceType.CUDA and not event.is_user_annotation()]
    collectives = [event for event in ran if event.name().startswith("nccl")]
    others = [event for event in ran if not event.name().startswith("nccl")]
    return _summary(len(collectives), collectives, others)


def on_cpu(events: Iterable[KinetoEvent]) -> Communication:
    """Communication on a CPU: gloo's operations, in threads of its own, against PyTorch's operators."""
    named = [(event.name(), event) for event in events]
    calls = sum(name.startswith("c10d::") for name, _ in named)
    collectives = [event for name, event in named if name.startswith("gloo:")]
    return _summary(calls, collectives, [event for name, event in named if name.startswith("aten::")])


def _summary(count: int, collectives: list[KinetoEvent], others: list[KinetoEvent]) -> Communication:
    computing = _intervals(others)
    of_kind: dict[Collective, list[KinetoEvent]] = {}
    for event in collectives:
        if kind := kind_of(event.name()):
            of_kind.setdefault(kind, []).append(event)
    whole = _busy(collectives, computing)
    return Communication(
        collectives=count,
        busy=whole.busy,
        overlap=whole.overlap,
        worked=union_length(_intervals(collectives) + computing) / 1e9,
        kinds={kind: _busy(events, computing) for kind, events in of_kind.items()},
    )


def _busy(collectives: list[KinetoEvent], computing: list[tuple[int, int]]) -> Busy:
    communicating = _intervals(collectives)
    busy, computed = union_length(communicating), union_length(computing)
    worked = union_length(communicating + computing)
    return Busy(busy=busy / 1e9, overlap=(busy + computed - worked) / 1e9)


def _intervals(events: list[KinetoEvent]) -> list[tuple[int, int]]:
    return [(event.start_ns(), event.start_ns() + event.duration_ns()) for event in events]
