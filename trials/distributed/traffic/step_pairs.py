"""Pairs of steps with and without synchronization: their difference is the exposed communication time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.distributed.parallel.data_parallel_step import SYNCHRONIZATION, DataParallelStep
from lmsweep.trials.distributed.parallel.local_step import DoesNotFit, local_step, try_local_step
from lmsweep.trials.distributed.ranks.coordinator import Team
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag, those_that_hold
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.statistics.median_interval import count_outliers, median_interval
from lmsweep.trials.timing.clock import Iteration
from lmsweep.trials.timing.validity_flags import flags_of_times


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A step with synchronization and one without, run back to back."""

    synchronized: Iteration
    """Seconds; of each phase, the slowest rank's."""
    local_by_rank: tuple[float, ...]
    """Seconds of the step without synchronization; empty once it has not fit in memory."""


class StepPairs:
    """Runs pairs of steps, and steps with synchronization alone once one without has not fit in memory."""

    def __init__(self, team: Team[DataParallelStep]) -> None:
        self._team = team
        self._count = 0
        self._was_tried = False
        self.does_not_fit: DoesNotFit | None = None
        """Set once a step without synchronization has not fit in memory."""

    def run(self) -> Pair:
        """Run one pair. The order alternates, so that neither is always the second."""
        local_first = self._count % 2 == 1
        self._count += 1
        local = self._local() if local_first else []
        synchronized = slowest(self._team.all(DataParallelStep.step))
        local = local if local_first else self._local()
        return Pair(synchronized=synchronized, local_by_rank=tuple(one.step for one in local))

    def _local(self) -> list[Iteration]:
        if self.does_not_fit:
            return []
        answers: Sequence[Iteration | DoesNotFit | None] = []
        if not self._was_tried:
            self._was_tried = True
            answers = self._team.all(try_local_step)
        if not any(answers):
            answers = self._team.all(local_step)
        taken = [answer for answer in answers if isinstance(answer, Iteration)]
        if len(taken) == len(answers):
            return taken
        self.does_not_fit = next(answer for answer in answers if isinstance(answer, DoesNotFit))
        self._team.all(DataParallelStep.rebuild)
        self._team.all(DataParallelStep.step)  # creates the optimizer's state again
        return []


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
    """Times of the slowest rank in each step; exposed communication and skew of each pair; seconds. device: its
    datasheet, if there is one. doubtful: flags of all times. does_not_fit: why the step without synchronization was not
    timed."""

    def row(phase: str, metric: str, value: Callable[[Pair], float]) -> Measurement:
        samples, before = (tuple(value(pair) for pair in taken) for taken in (measured, warmup))
        return Measurement(phase=phase, metric=metric, unit="s", samples=samples, warmup_samples=before)

    def timed(phase: str, work: str, value: Callable[[Pair], float]) -> Measurement:
        found = row(phase, "time", value)
        assert found.samples, "there is at least one pair"
        return replace(found, flags=doubtful + flags_of_times(config, work, found.samples, device))

    phases = ["forward", "backward", SYNCHRONIZATION] + (["optimizer"] if config.mode == "train_step" else [])
    for i, phase in enumerate(phases):
        yield timed(phase, phase, partial(lambda i, pair: pair.synchronized.phases[i], i))
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
        yield row(f"rank{rank}", "local_step_time", partial(lambda rank, pair: pair.local_by_rank[rank], rank))


def exposed_flags(differences: Sequence[float]) -> tuple[Flag, ...]:
    """`not_resolved` unless the confidence interval of the median lies above 0; `outliers`."""
    low, _ = median_interval(differences)
    found = {Flag.NOT_RESOLVED: not low > 0, Flag.OUTLIERS: count_outliers(np.array([differences]))[0] > 0}
    return those_that_hold(found)
