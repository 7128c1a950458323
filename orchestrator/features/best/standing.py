"""The probability that a cell is the best, under the surrogate's belief about all cells together.

Noise makes the smallest of many measured values too small. The surrogate corrects this: it knows what other cells with
the same values measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from lmsweep.orchestrator.features.best.cells.cells import Error
from lmsweep.orchestrator.features.best.surrogate import Belief, Space, Surrogate
from lmsweep.trials.statistics.median_interval import Floats
from lmsweep.trials.statistics.variation import reach

RIGHT_MARGIN = 0.02
"""An answer is right if its cost is at most this share above the lowest cost."""
MOST_WRONG = 0.2
"""If the probability of a wrong answer is higher, the best cell is reported as not known."""
FEWEST_CELLS = 4
"""Minimum number of cells for a surrogate."""
MOST_CELLS = 300
"""Maximum number of cells that a surrogate is fitted to: the best ones. The others keep their measured values."""
DRAWS = 2000
"""Random draws of all contenders: the standard error of a probability of MOST_WRONG is then 0.01."""
CONTENDERS = 100
"""Maximum number of cells that are drawn jointly: those most likely to be better than the leader."""
SURROGATE_FREEDOM = 7.0
"""Degrees of freedom of the surrogate's error, whose parameters come from a few dozen cells; fitted to simulations."""
SURROGATE_REACH = float(reach(np.array(SURROGATE_FREEDOM)))
"""Half the width of its 95 % intervals, in standard errors."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The leader, compared with the other cells. Values are logarithms of costs."""

    leader: int
    value: float
    """The believed cost of the leader."""
    value_error: float
    ahead: Floats
    """How much better than each cell the leader is believed to be."""
    error: Floats
    """Standard error of `ahead`."""
    freedom: float
    """Degrees of freedom of `error`."""
    wrong: float
    """Probability that any cell is better than the leader by more than RIGHT_MARGIN."""

    def chance(self, margin: float = 0.0) -> Floats:
        """Return the probability that the leader is better than each cell, or at most `margin` worse."""
        distance = self.ahead + np.log1p(margin)
        with np.errstate(divide="ignore", invalid="ignore"):
            standard = np.where(self.error > 0, distance / self.error, np.where(distance >= 0, np.inf, -np.inf))
        return np.asarray(stdtr(self.freedom, standard))

    @property
    def interval_reach(self) -> float:
        """Half the width of a 95 % interval in standard errors."""
        return float(reach(np.array(self.freedom)))


def standing(belief: Belief, errors: Sequence[Error]) -> Standing:
    """Return the standing of the cell with the smallest believed value. errors: the errors of the measured cells."""
    freedom = min(SURROGATE_FREEDOM, float(np.median([one.freedom or np.inf for one in errors])))
    leader = int(np.argmin(belief.mean))
    variances = np.diag(belief.covariance)
    squares = variances + variances[leader] - 2 * belief.covariance[leader]
    stands = Standing(
        leader=leader,
        value=float(belief.mean[leader]),
        value_error=float(np.sqrt(max(variances[leader], 0.0))),
        ahead=belief.mean - belief.mean[leader],
        error=np.sqrt(np.maximum(squares, 0)),
        freedom=freedom,
        wrong=0.0,
    )
    nearest = np.argsort(stands.chance(RIGHT_MARGIN), kind="stable")[:CONTENDERS]
    contenders = np.array([leader, *nearest[nearest != leader]], dtype=np.int64)  # as chance_of_better takes them
    among = Belief(belief.mean[contenders], belief.covariance[np.ix_(contenders, contenders)])
    return replace(stands, wrong=chance_of_better(among, RIGHT_MARGIN, freedom))


def believed(space: Space, costs: Floats, errors: Sequence[Error]) -> Belief:
    """Return the belief about measured cells: from a surrogate of the best of them, or if there are few, as measured.
    costs: logarithms of their costs. errors: of these logarithms."""
    deviations = np.array([one.deviation for one in errors])
    belief = Belief(costs.copy(), np.diag(deviations**2))
    if len(costs) < FEWEST_CELLS or not space.axes or not deviations.any():
        return belief
    near = np.argsort(costs, kind="stable")[:MOST_CELLS]
    middle = costs[near].mean()
    surrogate = Surrogate(space, space.codes[near], costs[near] - middle, deviations[near])
    mean, covariance = surrogate.believe(space.codes[near], np.arange(len(near)))
    belief.mean[near] = mean + middle
    belief.covariance[np.ix_(near, near)] = covariance
    return belief


def chance_of_better(belief: Belief, margin: float, freedom: float) -> float:
    """Return the probability that any cell is better than the first by more than the margin, a share."""
    rng = np.random.default_rng(0)
    count = len(belief.mean)
    # Eigenvalues and not a Cholesky factor: cells whose repetitions are equal have no variance.
    values, vectors = np.linalg.eigh(belief.covariance)
    moves = rng.standard_normal((DRAWS, count)) @ (vectors * np.sqrt(np.maximum(values, 0))).T  # (draws, cells)
    drawn = belief.mean + moves * np.sqrt(freedom / rng.chisquare(freedom, DRAWS))[:, None]  # Student's t
    return float(np.mean(drawn.min(axis=1) < drawn[:, 0] - np.log1p(margin)))
