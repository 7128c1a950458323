"""Pairs of steps with and without synchronization: their difference is the exposed communication time."""

from collections.abc import Sequence
from dataclasses import dataclass

from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep
from lmsweep.trials.distributed.parallel.local_step import Misfit
from lmsweep.trials.distributed.ranks.coordinator import Team
from lmsweep.trials.distributed.ranks.orders import Rebuild, RehearseLocalStep, TimeLocalStep, TimeStep
from lmsweep.trials.timing.clock import Iteration


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A step with synchronization and one without, run back to back."""

    synchronized: Iteration
    """Seconds of the step with synchronization; of each phase, the slowest rank's."""
    local_by_rank: tuple[float, ...]
    """Seconds of the step without synchronization, by rank; none from the first on that has not fit in memory."""


class StepPairs:
    """Runs pairs of steps, and steps with synchronization alone once one without has not fit in memory."""

    def __init__(self, team: Team[DataParallelStep]) -> None:
        self._team = team
        self._count = 0
        self._is_rehearsed = False
        self.misfit: Misfit | None = None
        """Set once a step without synchronization has not fit in memory."""

    def run(self) -> Pair:
        """Run one pair. The order alternates, so that neither is always the second."""
        local_first = self._count % 2 == 1
        self._count += 1
        local = self._local() if local_first else []
        synchronized = slowest(self._team.all(TimeStep()))
        local = local if local_first else self._local()
        return Pair(synchronized=synchronized, local_by_rank=tuple(one.step for one in local))

    def _local(self) -> list[Iteration]:
        """The step of each rank; none if one does not fit."""
        if self.misfit:
            return []
        answers: Sequence[Iteration | Misfit | None] = []
        if not self._is_rehearsed:
            self._is_rehearsed = True
            answers = self._team.all(RehearseLocalStep())
        if not any(answers):
            answers = self._team.all(TimeLocalStep())
        taken = [answer for answer in answers if isinstance(answer, Iteration)]
        if len(taken) == len(answers):
            return taken
        self.misfit = next(answer for answer in answers if isinstance(answer, Misfit))
        self._team.all(Rebuild())
        self._team.all(TimeStep())  # creates the optimizer's state again
        return []


def slowest(ranks: Sequence[Iteration]) -> Iteration:
    """One iteration as seen by the slowest rank: the maximum over ranks of each phase and of the step."""
    enqueued = [iteration.enqueue for iteration in ranks if iteration.enqueue is not None]
    return Iteration(
        phases=tuple(map(max, zip(*(iteration.phases for iteration in ranks), strict=True))),
        step=max(iteration.step for iteration in ranks),
        enqueue=max(enqueued) if enqueued else None,
    )
