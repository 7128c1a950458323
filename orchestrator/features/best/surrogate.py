"""A surrogate of the logarithm of a goal over a grid: a Gaussian process that learns from the cells that were measured.

The logarithm of a time is nearly a sum of effects: compilation saves 40 %, whatever the batch. So the process is a sum
of one effect per axis, an interaction of each pair of axes, and a rest of each single cell (Duvenaud, Nickisch and
Rasmussen, Additive Gaussian processes, NIPS 2011). The size of each axis's effect is learned as well: an axis that
changes little in a few cells is not searched further.

Unit of all values: natural logarithm, so that 0.02 is 2 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from lmsweep.trials.statistics.median_interval import Floats

Indices = NDArray[np.int64]

LENGTH_SCALE = 3.0
"""Doublings of a number, such as the batch size, at which the correlation of its effects falls to 1/e. An
assumption, like the priors below."""

OFFSET_DEVIATION = 2.0
"""Standard deviation of the offset that all cells share: the error of the prior mean. It is a factor of 7, so that
measurements decide."""


class LogPrior(NamedTuple):
    """A normal prior of the logarithm of a standard deviation.

    The three below are assumptions. docs/validation.md has how often searches with them are right: after a
    change, run `python -m benchmarks.best_reliability` again.
    """

    centre: float
    """The median of the standard deviation."""
    width: float
    """Of the normal distribution: 0.7 is a factor of 2."""


EFFECT_PRIOR = LogPrior(0.2, 1.0)
"""Prior of the standard deviation of the effects of one axis."""
INTERACTION_PRIOR = LogPrior(1.5, 0.7)
"""Prior of the standard deviation of an interaction, divided by the product of those of its two axes' effects."""
REST_PRIOR = LogPrior(0.05, 0.7)
"""Prior of the standard deviation of the rest of a single cell."""

LEAST_VARIANCE = 1e-12
"""Smallest variance of a cell: rounding may make it 0, and deviations are divisors."""

LOG_BOUNDS = (math.log(1e-3), math.log(5.0))
"""Of the logarithm of each standard deviation in a fit: from 0.1 % to a factor of 150."""

MOST_ITERATIONS = 30
"""Bounds the time of a fit, which usually ends after about ten."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One field that varies over the grid."""

    name: str
    values: tuple[object, ...]
    """The values of the field; a value's index is its code."""

    @property
    def is_scale(self) -> bool:
        """Whether its values are positive numbers; near ones act alike."""
        return all(isinstance(one, int | float) and not isinstance(one, bool) and one > 0 for one in self.values)

    def likeness(self) -> Floats:
        """Return the correlation of the effects of each pair of values, from 0 to 1, shape (values, values)."""
        if not self.is_scale:
            return np.eye(len(self.values))
        doublings = np.log2(np.array(self.values, dtype=np.float64))
        alike: Floats = np.exp(-np.abs(doublings[:, None] - doublings) / LENGTH_SCALE)
        return alike


@dataclass(frozen=True, kw_only=True)
class Space:
    """The cells of a grid, or of several."""

    axes: tuple[Axis, ...]
    codes: Indices
    """Code of each cell's value on each axis, shape (cells, axes)."""

    @classmethod
    def of(cls, names: Sequence[str], cells: Sequence[Sequence[object]]) -> "Space":
        """Return the space of cells, given by their value on each of these axes. Axes with one value are left out."""
        columns = [list(dict.fromkeys(cell[place] for cell in cells)) for place in range(len(names))]
        kept = [place for place, values in enumerate(columns) if len(values) > 1]
        codes = [[columns[place].index(cell[place]) for place in kept] for cell in cells]
        axes = tuple(Axis(name=names[place], values=tuple(columns[place])) for place in kept)
        return cls(axes=axes, codes=np.array(codes, dtype=np.int64).reshape(len(cells), len(kept)))


class Belief(NamedTuple):
    """What is believed about some cells."""

    mean: Floats
    covariance: Floats
    """Shape (cells, cells)."""


class Covariance(NamedTuple):
    """The covariance of cells with others, without the rest of single cells, and its summands."""

    whole: Floats
    effects: list[Floats]
    """The part of the effects of each axis."""
    total: Floats
    """The sum of `effects`."""
    pairs: Floats
    """The sum over all pairs of axes of the products of their effects."""


def _covariance(parts: list[Floats], parameters: Floats, shape: tuple[int, ...]) -> Covariance:
    """parts: the correlations on each axis. parameters: see `Surrogate.parameters`; the last two belong to no axis."""
    *variances, interaction, _ = np.exp(2 * parameters)
    effects = [variance * part for variance, part in zip(variances, parts, strict=True)]
    total = sum(effects, np.zeros(shape))
    # (a + b + c)² - (a² + b² + c²) = 2 (ab + ac + bc)
    pairs = (total**2 - sum((one**2 for one in effects), np.zeros(shape))) / 2
    return Covariance(OFFSET_DEVIATION**2 + total + interaction * pairs, effects, total, pairs)


class Surrogate:
    """The process, given the cells that were measured."""

    def __init__(
        self, space: Space, codes: Indices, values: Floats, errors: Floats, *, start: Floats | None = None
    ) -> None:
        """Fit it.

        codes: of the measured cells, shape (n, axes). values: their logarithms less the prior mean, shape (n,).
        errors: standard errors of the values. start: the `parameters` of an earlier fit, to begin from.
        """
        self._likeness = [axis.likeness() for axis in space.axes]
        self._codes, self._noise = codes, errors**2
        priors = [*([EFFECT_PRIOR] * len(space.axes)), INTERACTION_PRIOR, REST_PRIOR]
        self._centre = np.log([one.centre for one in priors])
        self._width = np.array([one.width for one in priors])
        self._parts = self._correlations(codes, codes)
        first = self._centre if start is None else start
        optimum = minimize(
            self.loss,
            first,
            args=(values,),
            jac=True,
            method="L-BFGS-B",
            bounds=[LOG_BOUNDS] * len(priors),
            options={"maxiter": MOST_ITERATIONS},
        )
        self.parameters: Floats = optimum.x
        """Logarithms of the standard deviations: one per axis, the interaction's, the rest's."""
        with_noise = _covariance(self._parts, self.parameters, (len(codes),) * 2).whole
        with_noise[np.diag_indices_from(with_noise)] += self._noise + self._rest
        self._factor = cho_factor(with_noise, lower=True)
        self._weights = cho_solve(self._factor, values)

    @property
    def _rest(self) -> float:
        """The variance of the rest of a single cell."""
        return math.exp(2 * self.parameters[-1])

    def believe(self, codes: Indices, measured: Indices) -> Belief:
        """Return the belief about cells.

        codes: shape (cells, axes). measured: for each cell, its index among the measured cells, or -1. A measured cell
        shares its rest with its measurement.
        """
        with_measured = self._between(codes, self._codes)
        known = measured >= 0
        with_measured[np.flatnonzero(known), measured[known]] += self._rest
        prior = self._between(codes, codes)
        prior[np.diag_indices_from(prior)] += self._rest
        half = solve_triangular(self._factor[0], with_measured.T, lower=True)
        return Belief(mean=with_measured @ self._weights, covariance=prior - half.T @ half)

    def mean_and_deviation(self, codes: Indices) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation of each of these cells. None of them was measured.

        As `believe`, without covariances: for many cells.
        """
        with_measured = self._between(codes, self._codes)
        with_itself = [np.ones(1)] * len(self._likeness)  # the correlation of a cell with itself, on each axis
        prior = _covariance(with_itself, self.parameters, (1,)).whole + self._rest
        half = solve_triangular(self._factor[0], with_measured.T, lower=True)
        return with_measured @ self._weights, np.sqrt(np.maximum(prior - (half**2).sum(axis=0), LEAST_VARIANCE))

    def contrast(self, codes: Indices, weights: Floats) -> tuple[float, float]:
        """Return mean and standard error of a weighted sum of cells, without their rests."""
        with_measured = weights @ self._between(codes, self._codes)
        half = solve_triangular(self._factor[0], with_measured, lower=True)
        variance = float(weights @ self._between(codes, codes) @ weights - half @ half)
        return float(with_measured @ self._weights), math.sqrt(max(variance, 0.0))

    def _between(self, codes: Indices, others: Indices) -> Floats:
        parts = self._correlations(codes, others)
        return _covariance(parts, self.parameters, (len(codes), len(others))).whole

    def _correlations(self, codes: Indices, others: Indices) -> list[Floats]:
        """Return, for each axis, the correlations of the effects of cells with those of others."""
        return [alike[np.ix_(codes[:, place], others[:, place])] for place, alike in enumerate(self._likeness)]

    def loss(self, parameters: Floats, values: Floats) -> tuple[float, Floats]:
        """Return the negative logarithm of the posterior of the parameters, up to a constant, and its gradient."""
        interaction, rest = np.exp(2 * parameters[-2:])
        whole, effects, total, pairs = _covariance(self._parts, parameters, (len(values),) * 2)
        whole[np.diag_indices_from(whole)] += self._noise + rest
        lower = np.linalg.cholesky(whole)
        inverse = cho_solve((lower, True), np.eye(len(values)))
        weights = inverse @ values
        slope = inverse - np.outer(weights, weights)  # twice the derivative of the loss by each element of `whole`
        # d loss / d parameter = sum(slope / 2 x d whole / d parameter). An axis has the effects e, which its parameter
        # scales by exp(2 x parameter): d e / d parameter = 2 e, whose 2 cancels with that half. As whole = total +
        # interaction x pairs + rest, and pairs = e x (total - e) + what has no e, d whole / d e is the last factor.
        gradient = [float((slope * effect * (1 + interaction * (total - effect))).sum()) for effect in effects]
        gradient += [float(interaction * (slope * pairs).sum()), float(rest * np.trace(slope))]
        away = (parameters - self._centre) / self._width
        loss = values @ weights / 2 + np.log(np.diag(lower)).sum() + (away**2).sum() / 2
        return float(loss), np.array(gradient) + away / self._width
