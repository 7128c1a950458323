"""What would come next if there were more memory: the best of the cells that do not fit, measured or expected."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from lmsweep.analysis.cells.cells import Cell
from lmsweep.analysis.cells.goal import Aim, Goal
from lmsweep.orchestrator.features.best.standing import WITHIN
from lmsweep.orchestrator.features.best.surrogate import Space, Surrogate
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.statistics.median_interval import Floats

TOO_LARGE = (Status.OOM, Status.PREDICTED_OOM)


@dataclass(frozen=True, kw_only=True)
class Larger:
    """The best of the cells that do not fit their device, or exceed the limit."""

    cell: Cell
    others: int
    ratio: float
    """How many times better than the winner it is; below 1 if it is worse."""
    low: float
    high: float
    """The 95 % interval of `ratio`."""
    is_measured: bool
    """Whether it ran, and exceeds the limit; else the surrogate expects the ratio."""


def best_larger(winner: Cell, known: Sequence[Cell], larger: Sequence[Cell], aim: Aim, space: Space) -> Larger | None:
    """Return the best of the larger cells; None if there is none, or the goal is memory.

    known: the cells with a cost. space: of `known` and then `larger`. The surrogate alone would expect of an unmeasured
    batch size what all batches have in common. A step takes a fixed time and a time per sequence, so the cost per token
    is nearly linear in 1 / batch; the surrogate learns what that leaves.
    """
    if not larger or aim.goal is Goal.MEMORY:
        return None
    costs = np.log([one.known_cost(aim) for one in known])
    errors = np.array([one.error(aim).deviation for one in known])
    inverse = np.array([1 / one.config.batch_size for one in (*known, *larger)])
    trend = _slope(space, costs, inverse[: len(known)]) * inverse
    rest = costs - trend[: len(known)]
    surrogate = Surrogate(space, space.codes[: len(known)], rest - rest.mean(), errors)
    mean, deviation = surrogate.mean_and_deviation(space.codes[len(known) :], np.full(len(larger), -1))
    expected = mean + rest.mean() + trend[len(known) :]
    # A larger cell that was measured is known as well as it was measured.
    measured = [one.cost(aim) for one in larger]
    values = [log(cost.median) if cost else value for cost, value in zip(measured, expected.tolist(), strict=True)]
    place = int(np.argmin(values))
    chosen = larger[place]
    error = chosen.error(aim).deviation if measured[place] else float(deviation[place])
    ahead, within = (
        log(winner.known_cost(aim)) - values[place],
        WITHIN * float(np.hypot(error, winner.error(aim).deviation)),
    )
    return Larger(
        cell=chosen,
        others=len(larger) - 1,
        ratio=exp(ahead),
        low=exp(ahead - within),
        high=exp(ahead + within),
        is_measured=measured[place] is not None,
    )


def _slope(space: Space, costs: Floats, inverse: Floats) -> float:
    """By how much the logarithm of the cost rises with 1 / batch if the other axes stay as they are."""
    columns = [inverse]
    for place, axis in enumerate(space.axes):
        if axis.name != "batch_size":
            columns += [
                (space.codes[: len(costs), place] == code).astype(np.float64) for code in range(len(axis.values))
            ]
    matrix = np.stack([*columns, np.ones(len(costs))], axis=1)
    return max(0.0, float(np.linalg.lstsq(matrix, costs)[0][0]))
