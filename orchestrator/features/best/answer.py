"""The answer: the best cell, its lead over the others and why, the Pareto front, and which axis mattered."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import NamedTuple

import numpy as np
import pandas as pd

import lmsweep
from lmsweep.analysis.data.columns import label
from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.process_variation import known_variation
from lmsweep.analysis.tables.listing import Listing
from lmsweep.orchestrator.features.best.cell_costs import keeps_limit, key_of, known_cost
from lmsweep.orchestrator.features.best.cells.cell_axes import DEVICE, axes_of, value_of
from lmsweep.orchestrator.features.best.cells.cells import Cell, Error, Value
from lmsweep.orchestrator.features.best.cells.front import pareto_front
from lmsweep.orchestrator.features.best.cells.goal import Aim, Goal
from lmsweep.orchestrator.features.best.standing import (
    FEWEST_CELLS,
    MOST_WRONG,
    SURROGATE_REACH,
    Standing,
    believed,
    standing,
)
from lmsweep.orchestrator.features.best.surrogate import Axis, Belief, Indices, Space, Surrogate
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.statistics.median_interval import Floats

TOO_LARGE = (Status.OOM, Status.PREDICTED_OOM)
"""Statuses of trials that need more memory."""
MOST_AVERAGED = 200
"""Maximum number of cells for averaging an effect; a larger grid is sampled evenly."""


@dataclass(frozen=True, kw_only=True)
class Beaten:
    """A cell, compared with the winner."""

    cell: Cell
    ratio: float
    """How many times better the winner is."""
    low: float
    high: float
    """The 95 % interval of `ratio`, the variation between processes included."""
    chance: float
    """Probability that the winner is better at all."""


Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class AxisEffect:
    axis: str
    best: Scalar
    worst: Scalar
    ratio: float
    """How many times better the best value is, as the geometric mean over the other axes."""
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Larger:
    """The best of the cells that do not fit their device, or exceed the limit."""

    cell: Cell
    others: int
    """Number of the other such cells."""
    ratio: float
    """How many times better than the winner it is; below 1 if it is worse."""
    low: float
    high: float
    """The 95 % interval of `ratio`."""
    is_measured: bool
    """Whether it ran, and exceeds the limit; else the surrogate expects the ratio."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    aim: Aim
    winner: Cell
    cost: Value
    """What the winner is believed to cost: its own result and those of cells that share its values."""
    beaten: tuple[Beaten, ...]
    """The other measured cells within the limit, best first."""
    wrong: float
    """Probability that one of them is better by more than `standing.RIGHT_MARGIN`."""
    over_limit: int
    """Measured cells that exceed the limit, or whose memory is unknown."""
    failed: int
    front: tuple[Cell, ...]
    """The Pareto front of time, memory and money; the fastest first."""
    effects: tuple[AxisEffect, ...]
    larger: Larger | None
    """The best cell that needs more memory; None if all fit, or no estimate exists for the others."""
    names: tuple[str, ...]
    """The fields in which the cells differ, `device` among them if there are several devices."""

    @property
    def measured(self) -> int:
        """Cells with a result."""
        return 1 + len(self.beaten) + self.over_limit

    @property
    def can_tell(self) -> bool:
        """Whether the winner is likely to be the best, up to `standing.RIGHT_MARGIN`."""
        return self.wrong < MOST_WRONG


class LargestBatch(NamedTuple):
    """The largest batch with which a winner is predicted to fit."""

    batch: int | None
    words: str
    """The memory that it may use, or why the batch is not known."""


class NoAnswer(NamedTuple):
    reason: str


def answer(
    cells: Sequence[Cell], aim: Aim, *, grid: Sequence[Cell | TrialConfig] = (), larger: Sequence[Cell] = ()
) -> Answer | NoAnswer:
    """Return the answer in the measured cells of one job.

    grid: further configurations, over which effects are averaged as well. larger: cells that did not run because they
    would not fit.
    """
    known = [one for one in cells if one.cost(aim) is not None]
    # The cells within the limit, and the number that each of them has in `known`.
    numbers = [number for number, one in enumerate(known) if keeps_limit(one, aim)]
    within = [known[number] for number in numbers]
    if not known:
        missing = "price" if aim.goal.value == "$/Mtoken" else f"result of the workload {aim.goal.workload}"
        return NoAnswer(f"no combination has a {missing}")
    if not within:
        return NoAnswer(f"none of {len(known)} measured combinations is known to meet the limit ({aim.words})")
    names = axes_of([*cells, *grid, *larger])
    log_costs = np.log([known_cost(one, aim).median for one in known])
    errors = [known_cost(one, aim).error for one in known]
    space = Space.of(names, [[value_of(one, name) for name in names] for one in known])
    belief = believed(space, log_costs, errors)
    # All cells teach the surrogate, but only those within the limit may win.
    belief_within = Belief(belief.mean[numbers], belief.covariance[np.ix_(numbers, numbers)])
    stands = standing(belief_within, [errors[number] for number in numbers])
    # Places in `within`. The less the leader is ahead of a cell, the better it is.
    best_first = [place for place in np.argsort(stands.ahead, kind="stable").tolist() if place != stands.leader]
    winner = within[stands.leader]
    cost = known_cost(winner, aim)
    return Answer(
        aim=aim,
        winner=winner,
        cost=cost._replace(median=exp(stands.value), error=Error(stands.value_error, stands.freedom)),
        beaten=tuple(_beaten(within[place], stands, place) for place in best_first),
        wrong=stands.wrong,
        over_limit=len(known) - len(within),
        failed=len(cells) - len(known),
        front=tuple(pareto_front(within, aim)),
        effects=tuple(_effects(known, aim, names, grid)),
        larger=_larger(winner, known, [*larger, *cells], aim, names),
        names=tuple(names),
    )


def explain_lead(answered: Answer, stores: Sequence[str]) -> Listing:
    """Explain the winner's step against that of the next cell with as many tokens a step in the same environment.

    stores: the locations that the answer is from. Raises RequestError if there is no such cell, and without profiles.
    """
    winner = answered.winner
    comparable = (
        one.cell
        for one in answered.beaten
        if one.cell.tokens == winner.tokens and one.cell.environment_id == winner.environment_id
    )
    if (second := next(comparable, None)) is None:
        raise RequestError(
            "--explain: no other combination was measured with as many tokens a step in the same environment"
        )
    frames = {location: load(location, pooled=False) for location in stores}
    second_rows, second_store = _rows_of(second, frames)
    winner_rows, winner_store = _rows_of(winner, frames)
    names = [name for name in answered.names if value_of(second, name) != value_of(winner, name)]
    between = {name: (label(value_of(second, name)), label(value_of(winner, name))) for name in names}
    known = known_variation(*frames.values())
    rows, locations = (second_rows, winner_rows), (second_store, winner_store)
    return lmsweep.explain_steps(rows, locations, between=between, known=known).listing()


def _rows_of(cell: Cell, frames: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, str]:
    """Return the rows of a cell, of the first store that has it, and the store's location."""
    for location, frame in frames.items():
        is_cell = (frame["trial_id"] == trial_id(cell.config)) & (frame["environment_id"] == cell.environment_id)
        rows = frame[is_cell & (frame["mode"] == cell.config.mode)]
        if len(rows):
            return rows, location
    raise AssertionError("a cell is from a store")


def _beaten(cell: Cell, stands: Standing, place: int) -> Beaten:
    """place: the cell's index in `stands`."""
    ahead, half_width = stands.ahead[place], stands.interval_reach * stands.error[place]
    return Beaten(
        cell=cell,
        ratio=exp(ahead),
        low=exp(ahead - half_width),
        high=exp(ahead + half_width),
        chance=float(stands.chance()[place]),
    )


def _larger(
    winner: Cell, known: Sequence[Cell], candidates: Sequence[Cell], aim: Aim, names: Sequence[str]
) -> Larger | None:
    """Return the best of the cells that need more memory; None if there is none, or the goal is memory.

    known: the cells with a cost. candidates: cells that may have failed for lack of memory.
    """
    larger = _needing_more(known, candidates, aim)
    if len(known) < FEWEST_CELLS or not larger or aim.goal is Goal.MEMORY:
        return None
    expected, deviation = _expected_costs(known, larger, aim, names)
    # A larger cell that was measured has its measured cost and error.
    measured = [one.cost(aim) for one in larger]
    values = [log(cost.median) if cost else value for cost, value in zip(measured, expected, strict=True)]
    place = int(np.argmin(values))
    cost, of_winner = measured[place], known_cost(winner, aim)
    error = cost.error.deviation if cost else float(deviation[place])
    ahead = log(of_winner.median) - values[place]
    half_width = SURROGATE_REACH * float(np.hypot(error, of_winner.error.deviation))
    return Larger(
        cell=larger[place],
        others=len(larger) - 1,
        ratio=exp(ahead),
        low=exp(ahead - half_width),
        high=exp(ahead + half_width),
        is_measured=cost is not None,
    )


def _needing_more(known: Sequence[Cell], candidates: Sequence[Cell], aim: Aim) -> list[Cell]:
    """Return the known cells that exceed the limit, then the candidates that did not fit and never ran, each once."""
    exceeding = [one for one in known if aim.peak is not None and one.peak is not None and one.peak >= aim.peak]
    failed = {(key_of(one.config), one.environment_id): one for one in candidates if one.status in TOO_LARGE}
    ran = {(key_of(one.config), one.environment_id) for one in known}
    return [*exceeding, *(one for key, one in failed.items() if key not in ran)]


def _expected_costs(
    known: Sequence[Cell], larger: Sequence[Cell], aim: Aim, names: Sequence[str]
) -> tuple[Floats, Floats]:
    """Return the expected logarithm of the cost of each larger cell, and its deviation.

    A step takes a fixed time and a time per sequence, so the logarithm of the cost per token is fitted with a slope
    over 1 / batch. The surrogate learns the residuals: alone, it would give a batch that was not measured the mean of
    those that were.
    """
    space = Space.of(names, [[value_of(one, name) for name in names] for one in (*known, *larger)])
    inverses = np.array([1 / one.config.batch_size for one in known])
    log_costs = np.log([known_cost(one, aim).median for one in known])
    slope = _slope(space, log_costs, inverses)
    residuals = log_costs - slope * inverses
    errors = np.array([known_cost(one, aim).error.deviation for one in known])
    surrogate = Surrogate(space, space.codes[: len(known)], residuals - residuals.mean(), errors)
    mean, deviation = surrogate.mean_and_deviation(space.codes[len(known) :])
    return mean + residuals.mean() + slope * np.array([1 / one.config.batch_size for one in larger]), deviation


def _slope(space: Space, log_costs: Floats, inverses: Floats) -> float:
    """The slope of the logarithm of the cost over 1 / batch, with the other axes fixed. inverses: 1 / batch of the
    cells with a cost, which are the first of the space."""
    columns = [inverses]
    for place, axis in enumerate(space.axes):
        codes = space.codes[: len(log_costs), place]
        if axis.name != "batch_size":  # a constant for each value of the axis
            columns += [(codes == code).astype(np.float64) for code in range(len(axis.values))]
    matrix = np.stack([*columns, np.ones(len(log_costs))], axis=1)
    # The constants of an axis add up to the column of ones, so there are many solutions: lstsq takes the smallest.
    solution = np.linalg.lstsq(matrix, log_costs)[0]
    return max(0.0, float(solution[0]))  # a larger batch costs no more per token


def _effects(
    known: Sequence[Cell], aim: Aim, names: Sequence[str], grid: Sequence[Cell | TrialConfig]
) -> list[AxisEffect]:
    """Return the effect of each axis over the grid, the largest first."""
    if len(known) < FEWEST_CELLS or not names:
        return []
    measured = {one.config for one in known}
    everything: list[Cell | TrialConfig] = [*known]
    if DEVICE not in names:  # a configuration of the grid names no device
        everything += [one for one in grid if isinstance(one, TrialConfig) and one not in measured]
    space = Space.of(names, [[value_of(one, name) for name in names] for one in everything])
    log_costs = np.log([known_cost(one, aim).median for one in known])
    errors = np.array([known_cost(one, aim).error.deviation for one in known])
    surrogate = Surrogate(space, space.codes[: len(known)], log_costs - log_costs.mean(), errors)
    averaged = space.codes[np.linspace(0, len(space.codes) - 1, min(MOST_AVERAGED, len(space.codes))).astype(np.int64)]
    effects = []
    for place, axis in enumerate(space.axes):
        tried = {value_of(one, axis.name) for one in known}  # of any other value nothing was measured
        codes = [code for code, value in enumerate(axis.values) if value in tried]
        if len(codes) > 1:
            effects.append(_effect(surrogate, averaged, place, axis, codes))
    return sorted(effects, key=lambda one: -one.ratio)


def _effect(surrogate: Surrogate, cells: Indices, place: int, axis: Axis, codes: Sequence[int]) -> AxisEffect:
    """Compare the values of an axis. place: its column in the codes of cells. codes: those of its measured values."""

    def everywhere(code: int) -> Indices:
        changed = cells.copy()
        changed[:, place] = code
        return changed

    share = np.full(len(cells), 1 / len(cells))
    means = {code: surrogate.contrast(everywhere(code), share)[0] for code in codes}
    best, worst = min(codes, key=means.__getitem__), max(codes, key=means.__getitem__)
    both = np.concatenate([everywhere(worst), everywhere(best)])
    worst_minus_best, error = surrogate.contrast(both, np.concatenate([share, -share]))
    return AxisEffect(
        axis=axis.name,
        best=scalar(axis.values[best]),
        worst=scalar(axis.values[worst]),
        ratio=exp(worst_minus_best),
        low=exp(worst_minus_best - SURROGATE_REACH * error),
        high=exp(worst_minus_best + SURROGATE_REACH * error),
    )


def scalar(value: object) -> Scalar:
    return value if isinstance(value, Scalar) else str(value)
