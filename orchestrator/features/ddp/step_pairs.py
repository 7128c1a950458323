"""Pairs of steps with and without synchronization: their difference is the exposed communication time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist

from lmsweep.orchestrator.features.ddp.checked.coordinator import Team
from lmsweep.orchestrator.features.ddp.timed_rank import TimedRank
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.distributed.parallel.data_parallel_step import SYNCHRONIZATION
from lmsweep.trials.distributed.parallel.fully_sharded import FullyShard
from lmsweep.trials.machine.gpu.accelerator import free_bytes
from lmsweep.trials.machine.out_of_memory import ran_out_of_memory
from lmsweep.trials.machine.torch_private import functional_collectives, replaced
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag, those_that_hold
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.statistics.median_interval import count_outliers, median_interval
from lmsweep.trials.timing.clock import Iteration
from lmsweep.trials.timing.validity_flags import flags_of_times

T = TypeVar("T")


@dataclass(frozen=True)
class DoesNotFit:
    """A step that does not fit in a rank's memory."""

    reason: str
    """What the allocator says, or what is known before it is asked."""


def local_step(step: TimedRank) -> Iteration | DoesNotFit:
    """Time one step without synchronization, unless it does not fit: then the rank has to be built again. All ranks
    must call it at the same time; with tp, after `try_local_step` has shown that the step fits."""
    sharded = step.synchronizer
    if not isinstance(sharded, FullyShard):  # whole weights: it takes no more memory than with synchronization
        return step.step(synchronized=False)
    if step.config.tp > 1:  # layers of tp would wait for a rank that gives up, so `try_local_step` has tried the step
        return step.step(synchronized=False)
    return _if_it_fits(sharded, lambda: step.step(synchronized=False))


def try_local_step(step: TimedRank) -> DoesNotFit | None:
    """With sharded weights and tp, try whether `local_step` fits: run it with layers that do not communicate either. It
    allocates as much memory, and no rank waits for one that gives up. Its results are wrong and dropped. If one rank
    returns DoesNotFit, all have to be built again. All ranks must call it at the same time."""
    sharded = step.synchronizer
    if not isinstance(sharded, FullyShard) or step.config.tp == 1:
        return None

    def run() -> None:
        with step.local(), ExitStack() as stack:
            # Compiled code contains its collectives, so these cannot be replaced. Eager code takes no less memory.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            for name, local in _LOCAL.items():
                stack.enter_context(replaced(functional_collectives(), name, local))
            step.run()
            step.forget_gradients()

    return _if_it_fits(sharded, run)


_LOCAL: dict[str, Callable[..., torch.Tensor]] = {
    "all_reduce": lambda tensor, operation, group: tensor.clone(),
    "all_gather_into_tensor": lambda tensor, ranks, group: torch.cat([tensor] * ranks),
    "reduce_scatter_tensor": lambda tensor, operation, ranks, group: tensor.chunk(ranks)[0].clone(),
}
"""Collective that tp's layers call -> a function that sends nothing and returns a tensor of the same size."""


def _if_it_fits(sharded: FullyShard, run: Callable[[], T]) -> T | DoesNotFit:
    if is_short_of_memory(sharded):
        return DoesNotFit("the gathered weights do not fit in memory")
    try:
        return run()
    except Exception as error:  # what runs out of memory within fully_shard's hooks may end as any exception
        cause: BaseException | None = error
        while cause and not ran_out_of_memory(cause):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        return DoesNotFit((str(cause).strip() or type(cause).__name__).splitlines()[0])


def is_short_of_memory(sharded: FullyShard) -> bool:
    """Whether any rank is known to lack memory for the gathered weights; all ranks must call it at the same time. A
    rank that ran out of memory while it gathers would leave the others waiting."""
    device_type = sharded.shards[0].device.type
    free = free_bytes(device_type)
    # If the free memory is unknown, assume that it suffices.
    lacking = torch.tensor(-1 if free is None else sharded.local_bytes - free, device=device_type)
    dist.all_reduce(lacking, dist.ReduceOp.MAX)
    return bool(lacking > 0)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A step with synchronization and one without, run back to back."""

    synchronized: Iteration
    """Seconds of each phase on the slowest rank."""
    local_by_rank: tuple[float, ...]
    """Seconds of the step without synchronization; empty if it did not fit in memory, now or in an earlier pair."""


class StepPairs:
    """Runs pairs of steps, and steps with synchronization alone once one without has not fit in memory."""

    def __init__(self, team: Team[TimedRank]) -> None:
        self._team = team
        self._count = 0
        self._was_tried = False
        """Whether `try_local_step` has run."""
        self.does_not_fit: DoesNotFit | None = None
        """Set once a step without synchronization has not fit in memory."""

    def run(self) -> Pair:
        """Run one pair. The order alternates, so that neither is always the second."""
        self._count += 1
        if self._count % 2 == 1:
            synchronized = slowest(self._team.all(TimedRank.step))
            local = self._local()
        else:
            local = self._local()
            synchronized = slowest(self._team.all(TimedRank.step))
        return Pair(synchronized=synchronized, local_by_rank=tuple(one.step for one in local))

    def _local(self) -> list[Iteration]:
        if self.does_not_fit:
            return []
        if not self._was_tried:
            self._was_tried = True
            if self._gave_up_and_rebuilt(self._team.all(try_local_step)):
                return []
        answers = self._team.all(local_step)
        return [] if self._gave_up_and_rebuilt(answers) else [one for one in answers if isinstance(one, Iteration)]

    def _gave_up_and_rebuilt(self, answers: Sequence[Iteration | DoesNotFit | None]) -> bool:
        """Whether the step did not fit in a rank. Then all ranks are built again."""
        self.does_not_fit = next((answer for answer in answers if isinstance(answer, DoesNotFit)), None)
        if self.does_not_fit is None:
            return False
        self._team.all(TimedRank.rebuild)
        self._team.all(TimedRank.step)  # creates the optimizer's state again
        return True


def slowest(ranks: Sequence[Iteration]) -> Iteration:
    """One iteration as seen by the slowest rank: the maximum over ranks of each phase and of the step."""
    enqueued = [iteration.enqueue for iteration in ranks if iteration.enqueue is not None]
    return Iteration(
        phases=tuple(map(max, zip(*(iteration.phases for iteration in ranks), strict=True))),
        step=max(iteration.step for iteration in ranks),
        enqueue=max(enqueued) if enqueued else None,
    )


def pair_rows(
    config: TrialConfig,
    device: Device | None,
    warmup: Sequence[Pair],
    measured: Sequence[Pair],
    *,
    doubtful: tuple[Flag, ...],
    does_not_fit: DoesNotFit | None,
) -> Iterator[Measurement]:
    """Yield the times of the slowest rank in each step, and for each pair the exposed communication and the skew.
    Seconds. device: its datasheet, if there is one. doubtful: flags of all times. does_not_fit: why the step without
    synchronization was not timed."""

    def row(phase: str, metric: str, value: Callable[[Pair], float]) -> Measurement:
        samples, before = (tuple(value(pair) for pair in taken) for taken in (measured, warmup))
        return Measurement(phase=phase, metric=metric, unit="s", samples=samples, warmup_samples=before)

    def timed(phase: str, work: str, value: Callable[[Pair], float]) -> Measurement:
        times = row(phase, "time", value)
        assert times.samples, "there is at least one pair"
        if config.varies:
            return replace(times, flags=doubtful)
        return replace(times, flags=doubtful + flags_of_times(config, work, times.samples, device))

    def phase_time(place: int) -> Callable[[Pair], float]:
        return lambda pair: pair.synchronized.phases[place]

    def local_time(rank: int) -> Callable[[Pair], float]:
        return lambda pair: pair.local_by_rank[rank]

    # In the order of `DataParallelStep.phases`.
    phases = ["forward", "backward", SYNCHRONIZATION] + (["optimizer"] if config.mode == "train_step" else [])
    for place, phase in enumerate(phases):
        yield timed(phase, phase, phase_time(place))
    yield timed("step", "step", lambda pair: pair.synchronized.step)
    if config.device_type == "cuda":
        yield row("step", "enqueue_time", lambda pair: pair.synchronized.enqueue or 0.0)
    ranks = range(config.world_size)
    if does_not_fit:
        why = f"which did not fit: {does_not_fit.reason}"
        reason = f"a step without synchronization holds whole weights and gradients, {why}"
        names = [("local_step", "time"), ("communication", "exposed_time"), ("local_step", "skew")]
        for phase, metric in [*names, *((f"rank{rank}", "local_step_time") for rank in ranks)]:
            yield Measurement(phase=phase, metric=metric, unit="s", samples=None, reason=reason)
        return
    yield timed("local_step", "step", lambda pair: max(pair.local_by_rank))
    exposed = row("communication", "exposed_time", lambda pair: pair.synchronized.step - max(pair.local_by_rank))
    yield replace(exposed, flags=doubtful + exposed_flags(exposed.samples or ()))
    yield row("local_step", "skew", lambda pair: max(pair.local_by_rank) - min(pair.local_by_rank))
    for rank in ranks:
        yield row(f"rank{rank}", "local_step_time", local_time(rank))


def exposed_flags(differences: Sequence[float]) -> tuple[Flag, ...]:
    """`not_resolved` unless the confidence interval of the median lies above 0; `outliers`."""
    low, _ = median_interval(differences)
    holds = {Flag.NOT_RESOLVED: not low > 0, Flag.OUTLIERS: count_outliers(np.array([differences]))[0] > 0}
    return those_that_hold(holds)
