"""Chooses which cell of a grid to measure next, and says when no other can beat the best one.

Set-up and compilation dominate a trial, so what saves time is not to run trials. Each choice takes the cell with the
most expected improvement per second of its trial (Jones, Schonlau and Welch, Efficient global optimization, 1998),
under the surrogate of all results so far. The time model is the surrogate's prior mean.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lmsweep.analysis.best.cells import BETWEEN_PROCESSES
from lmsweep.analysis.best.surrogate import Indices, Space, Surrogate
from lmsweep.trials.statistics.median_interval import Floats

MARGIN = 0.01
"""A cell counts as better only if it is better by more than this share."""
DOUBT = 0.002
"""The search ends when the probability, under the surrogate, that any cell left is better falls below this.

The surrogate's parameters are estimated from a few dozen cells, so it is surer than it should be. In the simulations of
docs/best.md, this threshold ends with a cell within 2 % of the best in more than 95 % of the searches; 0.05 does in
83 %.
"""


class Forecast(NamedTuple):
    """What is expected of the cells that were not measured."""

    cells: Indices
    mean: Floats
    deviation: Floats
    runs: Floats
    """Probability that the cell runs at all."""


class Search:
    """The state of a search. Values are natural logarithms of what is to be small."""

    def __init__(self, space: Space, *, prior: Floats, seconds: Floats) -> None:
        """prior: the expected value of each cell. seconds: the expected duration of each cell's trial."""
        self._space = space
        self._prior = prior
        self._seconds = seconds
        self._values: dict[int, float] = {}
        self._errors: dict[int, float] = {}
        self._failed: set[int] = set()
        self._running: set[int] = set()
        self._parameters: Floats | None = None
        self._surrogate: Surrogate | None = None
        self._fitted = 0
        self.likely: list[int] = []
        """The cells most likely to be chosen after the last one, the likeliest first."""

    @property
    def leader(self) -> int | None:
        """The best of the measured cells; None if none has a value yet."""
        return min(self._values, key=self._values.__getitem__, default=None)

    def learn(self, cell: int, value: float | None, error: float = BETWEEN_PROCESSES) -> None:
        """Learn the value of a cell and its standard error; None if it failed or does not meet the limits."""
        self._running.discard(cell)
        self._surrogate = None
        if value is None:
            self._failed.add(cell)
        else:
            self._values[cell] = value
            self._errors[cell] = error

    def withdraw(self, cell: int) -> None:
        """Forget that the cell is running: it did not begin."""
        self._running.discard(cell)

    def choose(self, left: Collection[int]) -> int | None:
        """Return which of these cells to measure next, or None if none of them is likely to be better.

        The cell counts as running until `learn` hears of it.
        """
        cells = np.array(sorted(set(left) - self._running), dtype=np.int64)
        if not len(cells):
            return None
        chosen: int
        first = self._choose_first(cells)
        if first:
            best: list[int] = cells[np.argsort(self._prior[cells], kind="stable")].tolist()
            chosen, *self.likely = dict.fromkeys([*first, *best])
        else:
            forecast = self.forecast(cells)
            if self.doubt_in(forecast) < DOUBT:
                return None
            gain = forecast.runs * self._improvement(forecast) / self._seconds[cells]
            chosen, *self.likely = cells[np.argsort(-gain, kind="stable")].tolist()
        self._running.add(chosen)
        return chosen

    def doubt(self, left: Collection[int]) -> float:
        """Return at most how probable it is that any of these cells is better than the leader by more than MARGIN."""
        cells = np.array(sorted(left), dtype=np.int64)
        if not len(cells):
            return 0.0
        return self.doubt_in(self.forecast(cells)) if self._values else 1.0

    def doubt_in(self, forecast: Forecast) -> float:
        """Return the same for cells whose forecast is known."""
        assert self.leader is not None, "a search without a value has no leader"
        deviation = np.hypot(forecast.deviation, self._errors[self.leader])
        better = ndtr((self._goal_to_beat() - forecast.mean) / deviation)
        return float(1 - np.prod(1 - forecast.runs * better))

    def forecast(self, cells: Indices) -> Forecast:
        """Return what is expected of these cells, which were not measured."""
        surrogate = self._fit()
        mean, deviation = surrogate.mean_and_deviation(self._space.codes[cells], np.full(len(cells), -1))
        return Forecast(cells, mean + self._prior[cells], deviation, self._chance_to_run(cells))

    def _goal_to_beat(self) -> float:
        assert self.leader is not None, "a search without a value has no leader"
        return self._values[self.leader] - MARGIN

    def _improvement(self, forecast: Forecast) -> Floats:
        ahead = self._goal_to_beat() - forecast.mean
        scaled = ahead / forecast.deviation
        density = np.exp(-(scaled**2) / 2) / np.sqrt(2 * np.pi)
        improvement: Floats = forecast.deviation * (scaled * ndtr(scaled) + density)
        return np.maximum(improvement, 1e-300)

    def _choose_first(self, cells: Indices) -> list[int]:
        """Return the first cells, in their order: together with those tried they have every value of every axis.

        Without a value they are never empty. They are once one is known and every value was tried.
        """
        codes = self._space.codes
        tried = [*self._values, *self._failed, *self._running]
        seen = [set(codes[tried, place].tolist()) for place in range(codes.shape[1])]
        chosen: list[int] = []
        while True:
            fresh = np.zeros(len(cells))
            for place, known in enumerate(seen):
                fresh += [code not in known for code in codes[cells, place].tolist()]
            if not fresh.max() and (chosen or self._values):
                return chosen
            most = cells[fresh == fresh.max()]
            chosen.append(int(most[np.argmin(self._prior[most])]))
            cells = cells[cells != chosen[-1]]
            for place, known in enumerate(seen):
                known.add(int(codes[chosen[-1], place]))
            if not len(cells):
                return chosen

    def _chance_to_run(self, cells: Indices) -> Floats:
        """Return how probable it is that each cell runs: of its values, the one that failed most often decides."""
        codes = self._space.codes
        chance = np.ones(len(cells))
        for place in range(codes.shape[1]):
            failed = Counter(codes[[*self._failed], place].tolist() if self._failed else [])
            worked = Counter(codes[[*self._values], place].tolist() if self._values else [])
            share = {code: (worked[code] + 1) / (worked[code] + failed[code] + 1) for code in failed}
            chance = np.minimum(chance, [share.get(code, 1.0) for code in codes[cells, place].tolist()])
        return chance

    def _fit(self) -> Surrogate:
        """Return the surrogate of all values. A running cell counts as measured, with the value expected of it."""
        if self._surrogate is None:
            self._surrogate = self._surrogate_of([*self._values], [*self._values.values()])
            self._parameters = self._surrogate.parameters
        if not self._running:
            return self._surrogate
        running = np.array(sorted(self._running), dtype=np.int64)
        mean, _ = self._surrogate.mean_and_deviation(self._space.codes[running], np.full(len(running), -1))
        expected = (mean + self._prior[running]).tolist()
        return self._surrogate_of([*self._values, *running.tolist()], [*self._values.values(), *expected])

    def _surrogate_of(self, cells: Sequence[int], values: Sequence[float]) -> Surrogate:
        measured = np.array(cells, dtype=np.int64)
        rest = np.array(values, dtype=np.float64) - self._prior[measured]
        errors = np.array([self._errors.get(cell, BETWEEN_PROCESSES) for cell in cells])
        return Surrogate(self._space, self._space.codes[measured], rest, errors, start=self._parameters)
