"""One synchronized step of a rank, watched for what it communicates and what it holds in memory.

Collectives are counted at PyTorch's dispatcher.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch.distributed as dist

from lmsweep.trials.analytic.collective_time import bus_factor
from lmsweep.trials.distributed.parallel.data_parallel_step import SYNCHRONIZATION, DataParallelStep
from lmsweep.trials.distributed.parallel.memory_stages import PARTS, STAGES, Held, Stage
from lmsweep.trials.machine.torch_private import TorchDispatchMode, group_size, schema_name
from lmsweep.trials.memory.storage_tracker import tensors_in
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.spec.words import Collective

_KINDS: dict[str, Collective] = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "send": "send_recv",
}
"""What the name of an operator of torch.distributed contains -> the collective. A receive is its sender's message."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The collectives of one kind that a rank takes part in, in one step."""

    calls: int
    size: int
    """Bytes of their messages as nccl-tests counts them: of a gather its result, of a scatter its input."""
    sent: float
    """Bytes that a rank sends at least: the size times `lmsweep.trials.analytic.collective_time.bus_factor`."""


class CollectiveCounter(TorchDispatchMode):
    """A context that counts the collectives which this process starts, those of backward included."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch does not annotate it
        self.traffic: dict[Collective, Traffic] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional"):
            self._count(schema_name(func).partition("::")[2], args, result)
        return result

    def _count(self, name: str, args: Sequence[Any], result: object) -> None:
        kind = next((kind for part, kind in _KINDS.items() if part in name), None)
        if kind is None:  # barriers, waits, receives
            return
        # Of a gather the largest tensor is the result, of a scatter the input: nccl-tests' size of the message.
        size = max(sum(tensor.nbytes for tensor in tensors_in(one)) for one in (*args, result))
        ranks = next((count for count in map(group_size, args) if count), dist.get_world_size())
        before = self.traffic.get(kind, Traffic(calls=0, size=0, sent=0.0))
        sent = before.sent + size * bus_factor(kind, ranks)
        self.traffic[kind] = Traffic(calls=before.calls + 1, size=before.size + size, sent=sent)


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What one rank did in one step. It is not timed."""

    traffic: Mapping[Collective, Traffic]
    """Its collectives, by kind."""
    memory: Mapping[Stage, Held]
    """What it held, at the stages that are known; none in compiled code, whose tensors cannot be seen."""


def report_step(step: DataParallelStep) -> StepReport:
    """Run two synchronized steps and report on the second; all ranks must call it at the same time. In the first,
    collectives show the buckets that DistributedDataParallel has made."""
    counter, watch, training = CollectiveCounter(), step.memory_watch, step.training
    memory: dict[Stage, Held] = {}
    if watch and step.after_init:
        with watch:
            for phase in step.phases():
                phase.run()
        step.forget_gradients()
        memory = {"init": step.after_init, "before_step": watch.held(training)}
    with counter, watch or nullcontext(), watch.peak_noted() if watch else nullcontext():
        for phase in step.phases():
            phase.run()
            if watch and phase.name == SYNCHRONIZATION:
                watch.label(training)
    training.drop()
    if watch and memory:
        memory["after_step"] = watch.held(training)
        memory["peak"] = watch.peak()
    step.forget_gradients()
    return StepReport(traffic=counter.traffic, memory=memory)


HIDDEN = "the tensors of compiled code cannot be seen"


def report_rows(reports: Sequence[StepReport]) -> Iterator[Measurement]:
    """Rows of the collectives of rank 0, by kind and together, and of the memory of each rank; calls and bytes."""
    traffic = reports[0].traffic
    for kind, found in traffic.items():
        yield Measurement(phase=kind, metric="calls", unit="1", samples=(found.calls,))
        yield Measurement(phase=kind, metric="size", unit="B", samples=(found.size,))
        yield Measurement(phase=kind, metric="sent", unit="B", samples=(found.sent,))
    size, sent = (sum(getattr(found, name) for found in traffic.values()) for name in ("size", "sent"))
    yield Measurement(phase="communication", metric="size", unit="B", samples=(size,))
    yield Measurement(phase="communication", metric="sent", unit="B", samples=(sent,))
    for (rank, report), stage in product(enumerate(reports), STAGES):
        phase = f"rank{rank}"
        held = report.memory.get(stage)
        if held is None:
            yield Measurement(phase=phase, metric=f"{stage}_memory", unit="B", samples=None, reason=HIDDEN)
            continue
        yield Measurement(phase=phase, metric=f"{stage}_memory", unit="B", samples=(held.total,))
        for part in PARTS:
            yield Measurement(phase=phase, metric=f"{stage}_{part}", unit="B", samples=(held.parts[part],))
