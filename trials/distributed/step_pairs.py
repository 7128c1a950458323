"""Pairs of steps with and without synchronisation, taken turn about: communication costs their difference."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmsweep.trials.distributed.coordinator import Team
from lmsweep.trials.timing.clock import Iteration


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A step with synchronisation and one without, right after each other: the slowest rank's times of each phase."""

    synchronized: Iteration
    local: Iteration
    local_by_rank: tuple[float, ...]
    """Seconds of the step without synchronisation, by rank."""


def in_pairs(team: Team) -> Callable[[], Pair]:
    """Runs pairs of steps; which of the two comes first alternates, so that being second favours neither."""
    count = 0

    def run() -> Pair:
        nonlocal count
        order = (True, False) if count % 2 == 0 else (False, True)
        count += 1
        taken = {synchronized: team.all("step", synchronized) for synchronized in order}
        return Pair(
            synchronized=slowest(taken[True]),
            local=slowest(taken[False]),
            local_by_rank=tuple(iteration.step for iteration in taken[False]),
        )

    return run


def slowest(ranks: Sequence[Iteration]) -> Iteration:
    """The longest time of each phase, and of the whole step, over the ranks of one iteration."""
    enqueued = [iteration.enqueue for iteration in ranks if iteration.enqueue is not None]
    return Iteration(
        phases=tuple(map(max, zip(*(iteration.phases for iteration in ranks), strict=True))),
        step=max(iteration.step for iteration in ranks),
        enqueue=max(enqueued) if enqueued else None,
    )
