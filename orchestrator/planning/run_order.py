"""Orders the trials of a run: one of each kind first, to show mistakes early; then long ones before short ones, so that
none runs alone at the end. With a budget: short ones before long ones, and those of unknown time last."""

from collections.abc import Callable, Mapping, Sequence

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimate

LONG_SECONDS = 600.0
"""If the eager trials take longer, the first compiled ones run before them."""


def in_order(
    trials: Sequence[PlannedTrial], estimates: Mapping[int, Estimate], *, budgeted: bool = False
) -> list[PlannedTrial]:
    """Return the trials in the order in which they run: by process, then by `_in_order`. estimates: by their index."""
    rounds = [[one for one in trials if one.process == number] for number in sorted({one.process for one in trials})]
    return [one for each in rounds for one in _in_order(each, estimates, budgeted=budgeted)]


def _in_order(
    trials: Sequence[PlannedTrial], estimates: Mapping[int, Estimate], *, budgeted: bool
) -> list[PlannedTrial]:
    def seconds(planned: PlannedTrial) -> float:
        return estimates[planned.index].seconds

    if budgeted:
        # One of unknown time may take all that is left.
        unknown = {one.index: estimates[one.index].reason is not None for one in trials}
        return sorted(trials, key=lambda one: (unknown[one.index], one.trial.config.compiles, seconds(one)))
    eager, compiled = ([one for one in trials if one.trial.config.compiles == which] for which in (False, True))
    first_eager, other_eager = _split(eager, seconds)
    first_compiled, other_compiled = _split(compiled, seconds)
    if sum(map(seconds, other_eager)) > LONG_SECONDS:
        return [*first_eager, *first_compiled, *other_eager, *other_compiled]
    return [*first_eager, *other_eager, *first_compiled, *other_compiled]


def _split(
    trials: Sequence[PlannedTrial], seconds: Callable[[PlannedTrial], float]
) -> tuple[list[PlannedTrial], list[PlannedTrial]]:
    """Return the shortest trial of each kind, and all others, the longest first."""
    firsts: dict[tuple[object, ...], PlannedTrial] = {}
    for planned in sorted(trials, key=seconds):
        firsts.setdefault(_kind(planned), planned)
    chosen = {planned.index for planned in firsts.values()}
    return list(firsts.values()), sorted((one for one in trials if one.index not in chosen), key=seconds, reverse=True)


def _kind(planned: PlannedTrial) -> tuple[object, ...]:
    config = planned.trial.config
    return planned.trial.workloads, config.device, config.precision, config.compile, config.attention, config.ddp
