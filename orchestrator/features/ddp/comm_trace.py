"""How long a step communicates, and how much of that overlaps with computation, from a trace of one step."""

import gzip
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, get_args

from torch.profiler import ProfilerActivity, profile

from lmsweep.orchestrator.features.ddp.timed_rank import TimedRank
from lmsweep.trials.machine.torch_private import DeviceType, KinetoEvent
from lmsweep.trials.profiling.device_time import union_length
from lmsweep.trials.profiling.torch_trace import take_trace
from lmsweep.trials.spec.words import Collective

SETTLE_SECONDS = 0.01
"""Time, after a run, for gloo's threads to write the end of their last operations into the trace."""

_NCCL: dict[str, Collective] = {kind.title().replace("_", ""): kind for kind in get_args(Collective)}
"""Name of a collective within that of NCCL's kernel, `AllGather` -> the collective. None begins another."""
_KERNEL = re.compile(rf"nccl\w*_({'|'.join(_NCCL)})")
_GLOO: dict[str, Collective] = {f"gloo:{kind.removesuffix('_recv')}": kind for kind in get_args(Collective)}
"""The same for gloo's operations. A message counts at its sender: send_recv is gloo:send."""


def kind_of(name: str) -> Collective | None:
    """The collective of a kernel of NCCL, ncclDevKernel_AllGather_..., or an operation of gloo, gloo:all_gather."""
    kernel = _KERNEL.match(name)
    return _NCCL[kernel[1]] if kernel else next((kind for word, kind in _GLOO.items() if name.startswith(word)), None)


class Interval(NamedTuple):
    """In nanoseconds."""

    begin: int
    end: int


class CollectiveKernel(NamedTuple):
    stream: int
    name: str
    ran: Interval


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Communication of one rank in one step, seconds."""

    busy: float
    """Seconds with at least one collective in flight, including the wait for a slower rank."""
    overlap: float
    """The part of `busy` in which the rank also computed."""


@dataclass(frozen=True, kw_only=True)
class Communication(Busy):
    collectives: int
    """Collectives that the rank took part in: kernels of NCCL, calls of gloo."""
    kinds: Mapping[Collective, Busy] = field(default_factory=dict)
    """The parts of `busy` and `overlap` by kind of collective. gloo runs a reduce-scatter as an all-reduce."""
    kernels: tuple[CollectiveKernel, ...] = ()
    """On a GPU: NCCL's kernels by stream, name and time, so kernels at one place in all ranks are one collective."""
    computed: tuple[Interval, ...] = ()
    """On a GPU: when its other kernels and its copies ran."""


def trace_communication(step: TimedRank) -> Communication:
    """Trace one synchronized step; all ranks must call it at the same time. Its wall time is never used. The trace must
    live until every collective has ended: gloo's threads write into it when an operation ends, even if it has been
    freed. The process then crashes later, in unrelated code (PyTorch 2.13)."""
    step.align()
    is_cuda = step.config.device_type == "cuda"
    # On a GPU without operators: recording them slows the host by so much that the step may wait for it.
    with profile(activities=[ProfilerActivity.CUDA if is_cuda else ProfilerActivity.CPU]) as trace:
        step.run()
        if not is_cuda:
            time.sleep(SETTLE_SECONDS)  # DistributedDataParallel returns a moment before its last operation has ended
    # Raw events: converting each to a FunctionEvent would take longer than the step.
    events = trace.profiler.kineto_results.events()
    communication = on_gpu(events) if is_cuda else on_cpu(events)
    step.forget_gradients()
    return communication


def on_gpu(events: Iterable[KinetoEvent]) -> Communication:
    """Communication on a GPU: kernels of NCCL, ncclDevKernel_AllReduce_..., against all other kernels and copies."""
    ran = [event for event in events if event.device_type() == DeviceType.CUDA and not event.is_user_annotation()]
    collectives = [event for event in ran if event.name().startswith("nccl")]
    others = [event for event in ran if not event.name().startswith("nccl")]
    kernels = [CollectiveKernel(one.device_resource_id(), one.name(), _interval(one)) for one in collectives]
    found = _summary(len(collectives), collectives, others)
    return replace(found, kernels=(*sorted(kernels),), computed=(*_intervals(others),))


def device_seconds(ranks: Sequence[Communication]) -> float | None:
    """Return the seconds in which the GPU worked in a step, the minimum over the ranks; None if these ran different
    collectives.

    The kernel of a rank that arrives early at a collective spins until the others arrive, so its duration includes the
    delay of their hosts. The last to arrive does not wait, so its kernel is the shortest. That duration counts in every
    rank, before the end of the rank's own kernel.
    """
    if len({tuple((one.stream, one.name) for one in rank.kernels) for rank in ranks}) > 1:
        return None
    of_collectives = [*zip(*(rank.kernels for rank in ranks), strict=True)]
    shortest = [min(one.ran.end - one.ran.begin for one in of_ranks) for of_ranks in of_collectives]

    def worked(rank: Communication) -> int:
        ends = [one.ran.end for one in rank.kernels]
        sent = [Interval(end - least, end) for end, least in zip(ends, shortest, strict=True)]
        return union_length([*rank.computed, *sent])

    return min(map(worked, ranks)) / 1e9


def on_cpu(events: Iterable[KinetoEvent]) -> Communication:
    """Communication on a CPU: gloo's operations, in threads of its own, against PyTorch's operators."""
    named = [(event.name(), event) for event in events]
    calls = sum(name.startswith("c10d::") for name, _ in named)
    collectives = [event for name, event in named if name.startswith("gloo:")]
    return _summary(calls, collectives, [event for name, event in named if name.startswith("aten::")])


def _summary(count: int, collectives: list[KinetoEvent], others: list[KinetoEvent]) -> Communication:
    """count: collectives in which the rank took part. collectives, others: what communicates, and what computes."""
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
        kinds={kind: _busy(events, computing) for kind, events in of_kind.items()},
    )


def _busy(collectives: list[KinetoEvent], computing: list[Interval]) -> Busy:
    communicating = _intervals(collectives)
    busy, computed = union_length(communicating), union_length(computing)
    either = union_length(communicating + computing)
    return Busy(busy=busy / 1e9, overlap=(busy + computed - either) / 1e9)


def _interval(event: KinetoEvent) -> Interval:
    return Interval(event.start_ns(), event.start_ns() + event.duration_ns())


def _intervals(events: list[KinetoEvent]) -> list[Interval]:
    return [_interval(event) for event in events]


FILE_NAME = "ranks.json.gz"
_FLOW_IDS = 2**40
"""A trace connects events by an `id`, which is below this. Rank r adds r times as much, so ranks do not share one."""


@dataclass(frozen=True, kw_only=True)
class RankTrace:
    """One rank's trace of one step."""

    file: bytes
    """The trace as gzip-compressed JSON, as PyTorch's profiler exports it."""
    aligned_at: int
    """time.time_ns() when this rank left the all-reduce that all ranks left together, just before the step."""


def trace_step(step: TimedRank) -> RankTrace:
    """Trace one synchronized step with operators. It is not timed: recording operators slows the host."""
    device = step.config.device_type
    step.align()
    aligned_at = time.time_ns()

    def run() -> None:
        step.run()
        if device == "cpu":
            time.sleep(SETTLE_SECONDS)  # gloo's threads write into the trace a moment later

    trace = take_trace(run, device)
    step.forget_gradients()
    return RankTrace(file=trace.file, aligned_at=aligned_at)


def merge_traces(traces: Sequence[RankTrace], *, one_host: bool) -> bytes:
    """Return one gzip-compressed trace of all ranks. Clocks of several hosts are aligned by `RankTrace.aligned_at`."""
    contents: list[dict[str, Any]] = [json.loads(gzip.decompress(trace.file)) for trace in traces]
    first = contents[0]
    origin = int(first.get("baseTimeNanoseconds", 0))
    events: list[dict[str, Any]] = []
    processes: dict[tuple[int, object], int] = {}  # (rank, its process id) -> process id in the merged trace
    for rank, (trace, content) in enumerate(zip(traces, contents, strict=True)):
        ahead = 0 if one_host else trace.aligned_at - traces[0].aligned_at
        shift = (int(content.get("baseTimeNanoseconds", 0)) - origin - ahead) / 1e3  # `ts` is in microseconds
        for event in content["traceEvents"]:
            if "pid" in event:
                event["pid"] = processes.setdefault((rank, event["pid"]), len(processes) + 1)
            if event.get("ph") == "M":
                if event.get("name") == "process_name":
                    event["args"] = {"name": f"rank {rank}: {event['args']['name']}"}
                if event.get("name") == "process_sort_index":
                    event["args"] = {"sort_index": rank}
            elif "ts" in event:
                event["ts"] = float(event["ts"]) + shift
            if isinstance(event.get("id"), int):
                event["id"] += rank * _FLOW_IDS
            events.append(event)
    return gzip.compress(json.dumps({**first, "traceEvents": events}).encode(), compresslevel=6, mtime=0)
