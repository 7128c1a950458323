"""Pairs of steps with and without synchronization: their difference is the exposed communication time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmsweep.trials.distributed.coordinator import Team
from lmsweep.trials.distributed.data_parallel_step import DataParallelStep
from lmsweep.trials.distributed.orders import TimeStep
from lmsweep.trials.timing.clock import Iteration


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A step with synchronization and one without, run back to back."""

    synchronized: Iteration
    """Seconds of the step with synchronization; of each phase, the slowest rank's."""
    local: Iteration
    """The same without synchronization."""
    local_by_rank: tuple[float, ...]
    """Seconds of the step without synchronization, by rank."""


def in_pairs(team: Team[DataParallelStep]) -> Callable[[], Pair]:
    """A function that runs one pair of steps. The order alternates, so that neither is always the second."""
    count = 0

    def run() -> Pair:
        nonlocal count
        order = (True, False) if count % 2 == 0 else (False, True)
        count += 1
        taken = {synchronized: team.all(TimeStep(synchronized=synchronized)) for synchronized in order}
        return Pair(
            synchronized=slowest(taken[True]),
            local=slowest(taken[False]),
            local_by_rank=tuple(iteration.step for iteration in taken[False]),
        )

    return run


def slowest(ranks: Sequence[Iteration]) -> Iteration:
    """One iteration as seen by the slowest rank: the maximum over ranks of each phase and of the step."""
    enqueued = [iteration.enqueue for iteration in ranks if iteration.enqueue is not None]
    return Iteration(
        phases=tuple(map(max, zip(*(iteration.phases for iteration in ranks), strict=True))),
        step=max(iteration.step for iteration in ranks),
        enqueue=max(enqueued) if enqueued else None,
    )
