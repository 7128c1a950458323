"""The order in which trials run: early the first of every kind, so that what is wrong is seen early; then long ones
before short ones, so that no device works alone at the end.
"""

from collections.abc import Callable, Mapping, Sequence

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimate

LONG_SECONDS = 600.0
"""Trials that take longer in all do not keep the first compiled ones waiting, though the compiler is then loaded twice.
"""


def in_order(
    trials: Sequence[PlannedTrial], estimates: Mapping[int, Estimate], *, budgeted: bool = False
) -> list[PlannedTrial]:
    """The trials in the order in which they are handed out. Compiled ones share a process while they follow one
    another, so they come last together. Where the time is given, short ones come first: most of them fit into it.
    """

    def seconds(planned: PlannedTrial) -> float:
        return estimates[id(planned)].seconds

    if budgeted:
        return sorted(trials, key=lambda one: (one.trial.config.compiles, seconds(one)))
    eager, compiled = ([one for one in trials if one.trial.config.compiles == which] for which in (False, True))
    parts = [_split(part, seconds) for part in (eager, compiled)]
    (first_eager, other_eager), (first_compiled, other_compiled) = parts
    if sum(map(seconds, other_eager)) > LONG_SECONDS:
        return [*first_eager, *first_compiled, *other_eager, *other_compiled]
    return [*first_eager, *other_eager, *first_compiled, *other_compiled]


def _split(
    trials: Sequence[PlannedTrial], seconds: Callable[[PlannedTrial], float]
) -> tuple[list[PlannedTrial], list[PlannedTrial]]:
    """The shortest of every kind, and the others, longest first."""
    firsts: dict[tuple[object, ...], PlannedTrial] = {}
    for planned in sorted(trials, key=seconds):
        firsts.setdefault(_kind(planned), planned)
    chosen = {id(planned) for planned in firsts.values()}
    return list(firsts.values()), sorted((one for one in trials if id(one) not in chosen), key=seconds, reverse=True)


def _kind(planned: PlannedTrial) -> tuple[object, ...]:
    """What trials of one kind have in common: all but the size of the work."""
    config = planned.trial.config
    words = (config.device, config.precision, config.compile, config.attention, config.ddp)
    return planned.trial.workloads, *words
