"""One synchronized step of a rank, watched for what it communicates and what it holds in memory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any

from lmsweep.orchestrator.features.ddp.memory_stages import PARTS, Held
from lmsweep.orchestrator.features.ddp.timed_rank import TimedRank
from lmsweep.trials.analytic.rates.collective_rates import bus_factor
from lmsweep.trials.distributed.parallel.data_parallel_step import SYNCHRONIZATION
from lmsweep.trials.distributed.ranks.comm_count import message_of
from lmsweep.trials.machine.torch_private import TorchDispatchMode
from lmsweep.trials.results.measurement import Measurement, one_number
from lmsweep.trials.results.metrics import STAGES, Stage
from lmsweep.trials.spec.words import Collective


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The collectives of one kind that a rank takes part in, in one step."""

    calls: int
    size: int
    """Bytes of their messages as nccl-tests counts them: of a gather its result, of a scatter its input."""
    sent: float
    """Bytes that a rank sends at least: the size times `lmsweep.trials.analytic.rates.collective_rates.bus_factor`."""


class CollectiveCounter(TorchDispatchMode):
    """A context that counts the collectives which this process starts, those of backward included."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch does not annotate it
        self.traffic: dict[Collective, Traffic] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._count(func, args, result)
        return result

    def _count(self, func: Any, args: Sequence[Any], result: object) -> None:
        message = message_of(func, args, result)
        if message is None:
            return
        before = self.traffic.get(message.kind, Traffic(calls=0, size=0, sent=0.0))
        sent = before.sent + message.size * bus_factor(message.kind, len(message.ranks))
        self.traffic[message.kind] = Traffic(calls=before.calls + 1, size=before.size + message.size, sent=sent)


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What one rank did in one step. It is not timed."""

    traffic: Mapping[Collective, Traffic]
    """Its collectives, by kind."""
    memory: Mapping[Stage, Held]
    """What it held, at the stages that are known; none in compiled code, whose tensors cannot be seen."""


def report_step(step: TimedRank) -> StepReport:
    """Run a synchronized step and report on it; all ranks must call it at the same time. If memory is watched, another
    step runs before it: its collectives show which storages are buckets of DistributedDataParallel, so these count as
    communication from the start of the step that is reported."""
    counter, watch, training = CollectiveCounter(), step.memory_watch, step.training
    memory: dict[Stage, Held] = {}
    if watch and step.after_init:
        with watch:
            step.run()
        step.forget_gradients()
        step.align()  # gloo's threads hold what they have sent until the next collective
        memory = {"init": step.after_init, "before_step": watch.held(training)}
    with counter, watch or nullcontext(), watch.peak_noted() if watch else nullcontext():
        for phase in step.phases():
            phase.run()
            if watch and phase.name == SYNCHRONIZATION:
                watch.label(training)  # gradients exist now; `drop` may free them before the next `held`
    training.drop()
    if watch and memory:
        memory["after_step"] = watch.held(training)
        memory["peak"] = watch.peak()
    step.forget_gradients()
    return StepReport(traffic=counter.traffic, memory=memory)


HIDDEN = "the tensors of compiled code cannot be seen"


def report_rows(reports: Sequence[StepReport]) -> Iterator[Measurement]:
    """Rows of the collectives of rank 0, of each kind and in all, and of the memory of each rank at each stage."""
    traffic = reports[0].traffic
    for kind, of_kind in traffic.items():
        yield Measurement(phase=kind, metric="calls", unit="1", samples=(of_kind.calls,))
        yield Measurement(phase=kind, metric="size", unit="B", samples=(of_kind.size,))
        yield Measurement(phase=kind, metric="sent", unit="B", samples=(of_kind.sent,))
    size, sent = (sum(getattr(of_kind, name) for of_kind in traffic.values()) for name in ("size", "sent"))
    yield Measurement(phase="communication", metric="size", unit="B", samples=(size,))
    yield Measurement(phase="communication", metric="sent", unit="B", samples=(sent,))
    for (rank, report), stage in product(enumerate(reports), STAGES):
        phase = f"rank{rank}"
        held = report.memory.get(stage)
        yield one_number(phase, f"{stage}_memory", "B", held.total if held else None, HIDDEN)
        if held:
            yield from (one_number(phase, f"{stage}_{part}", "B", held.parts[part]) for part in PARTS)
