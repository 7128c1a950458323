"""What would come next if there were more memory: the best of the cells that do not fit, measured or expected."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from lmsweep.analysis.best.cells import WITHIN, Cell
from lmsweep.analysis.best.goal import Aim, Goal
from lmsweep.analysis.best.surrogate import Space, Surrogate
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.device_time import device_seconds
from lmsweep.trials.results.outcome import Status

TOO_LARGE = (Status.OOM, Status.PREDICTED_OOM)


@dataclass(frozen=True, kw_only=True)
class Larger:
    """The best of the cells that do not fit their device, or exceed the limit."""

    cell: Cell
    others: int
    """How many more cells do not fit."""
    ratio: float
    """How many times better than the winner it is; below 1 if it is worse."""
    low: float
    high: float
    """The 95 % interval of `ratio`."""
    is_measured: bool
    """Whether it ran, and exceeds the limit; else the surrogate expects the ratio."""


def best_larger(
    winner: Cell, known: Sequence[Cell], larger: Sequence[Cell], aim: Aim, points: Sequence[Sequence[object]]
) -> Larger | None:
    """Return the best of the larger cells, or None if there is none or nothing can be expected of them.

    known: the cells with a cost, the winner among them. points: the values of the axes, of `known` and then `larger`.

    The surrogate learns what the datasheet's time of a step leaves unexplained, because a larger batch than any that
    was measured has no other way to be expected.
    """
    if not larger or aim.goal is Goal.MEMORY:
        return None
    places = np.arange(len(known), len(known) + len(larger))
    prior = np.array([_log_expected(cell, aim) for cell in (*known, *larger)])
    if np.isnan(prior).any():
        return None
    costs = np.log([_cost(one, aim) for one in known])
    errors = np.array([one.error(aim) for one in known])
    rest = costs - prior[: len(known)]
    space = Space.of([str(place) for place in range(len(points[0]))], points)
    surrogate = Surrogate(space, space.codes[: len(known)], rest - rest.mean(), errors)
    mean, deviation = surrogate.mean_and_deviation(space.codes[places], np.full(len(larger), -1))
    expected = mean + rest.mean() + prior[places]
    # A larger cell that was measured is known as well as it was measured.
    measured = [one.cost(aim) for one in larger]
    values = [log(cost.median) if cost else value for cost, value in zip(measured, expected.tolist(), strict=True)]
    place = int(np.argmin(values))
    chosen = larger[place]
    error = chosen.error(aim) if measured[place] else float(deviation[place])
    ahead, within = log(_cost(winner, aim)) - values[place], WITHIN * float(np.hypot(error, winner.error(aim)))
    return Larger(
        cell=chosen,
        others=len(larger) - 1,
        ratio=exp(ahead),
        low=exp(ahead - within),
        high=exp(ahead + within),
        is_measured=measured[place] is not None,
    )


def _cost(cell: Cell, aim: Aim) -> float:
    cost = cell.cost(aim)
    assert cost is not None, "a known cell has a cost"
    return cost.median


def _log_expected(cell: Cell, aim: Aim) -> float:
    """Return the logarithm of the cost that the datasheet expects; not a number if it expects nothing."""
    environment = cell.environment
    device = find_device(environment.device_name, environment.device_memory)
    seconds = device_seconds(cell.config, device) if device else 0.0
    hourly = aim.hourly(environment.device_name, environment.accelerator_type) if aim.goal is Goal.MONEY else 1.0
    return log(seconds / cell.tokens * hourly) if seconds and hourly else float("nan")
