"""One synchronized step of a rank, watched for what it communicates and what it holds in memory."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from lmsweep.trials.distributed.parallel.data_parallel_step import SYNCHRONIZATION, DataParallelStep
from lmsweep.trials.distributed.parallel.memory_stages import Held, Stage
from lmsweep.trials.distributed.traffic.comm_count import CollectiveCounter, Traffic
from lmsweep.trials.spec.words import Collective


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What one rank did in one step. It is not timed."""

    traffic: Mapping[Collective, Traffic]
    """Its collectives, by kind."""
    memory: Mapping[Stage, Held]
    """What it held, at the stages that are known; none in compiled code, whose tensors cannot be seen."""


def report_step(member: DataParallelStep) -> StepReport:
    """Run one synchronized step and report on it; all ranks must call it at the same time."""
    counter, watch, training = CollectiveCounter(), member.memory_watch, member.training
    memory: dict[Stage, Held] = {}
    if watch and member.after_init:
        memory = {"init": member.after_init, "before_step": watch.held(training)}
    with counter, watch or nullcontext(), watch.peak_noted() if watch else nullcontext():
        for phase in member.phases():
            phase.run()
            if watch and phase.name == SYNCHRONIZATION:
                watch.label_gradients(training)
    member.forget_graph()
    if watch and memory:
        memory["after_step"] = watch.held(training)
        memory["peak"] = watch.peak()
    member.forget_gradients()
    return StepReport(traffic=counter.traffic, memory=memory)
