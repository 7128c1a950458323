"""Chooses which trial to run next, and says when no other can beat the best one.

Set-up and compilation dominate a trial, so what saves time is not to run trials. Each choice takes the cell with the
most expected improvement per second of its trial (Jones, Schonlau and Welch, Efficient global optimization, 1998),
under the surrogate of all results so far. The time model is the surrogate's prior mean.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from math import hypot, log
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lmsweep.analysis.best.cells import BETWEEN_PROCESSES, Value
from lmsweep.analysis.best.goal import Aim
from lmsweep.analysis.best.surrogate import Indices, Space, Surrogate
from lmsweep.trials.results.metrics import PEAKS
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.statistics.median_interval import Floats
from lmsweep.trials.statistics.sample_stats import describe_samples

MARGIN = 0.01
"""A cell counts as better only if it is better by more than this share."""
DOUBT = 0.002
"""The search ends when the probability that any cell left is better, under the surrogate, falls below this.

The surrogate is surer than it should be: in the simulations of docs/best.md, this threshold ends within 2 % of the best
in more than 95 % of the searches; 0.05 does in 83 %.
"""


class Forecast(NamedTuple):
    """What is expected of cells that were not measured."""

    mean: Floats
    deviation: Floats
    runs: Floats
    """Probability that the cell runs at all."""


class Search:
    """A search for the cell with the smallest value. Cells are numbered; values are natural logarithms of costs."""

    def __init__(self, space: Space, *, prior: Floats, seconds: Floats, aim: Aim | None = None) -> None:
        """prior: expected values. seconds: expected durations of trials. aim: what `learn_trial` reads from rows."""
        self.aim = aim
        self._space = space
        self._prior = prior
        self._seconds = seconds
        self._values: dict[int, float] = {}
        self._errors: dict[int, float] = {}
        self._failed: set[int] = set()
        self._running: set[int] = set()
        self._parameters: Floats | None = None
        self._surrogate: Surrogate | None = None
        self.likely: list[int] = []
        """The cells most likely to be chosen after the last one, the likeliest first."""
        self.left = set(range(len(prior)))
        """The cells that have neither begun nor been learned."""
        self.ran = 0
        """How many trials have ended."""
        self.is_settled = False
        """Whether the search ended because no other cell is likely to be better."""
        self._was_cut_short = False
        """Whether a cell that it chose did not begin."""

    @property
    def leader(self) -> int | None:
        """The best of the measured cells; None if none has a value yet."""
        return min(self._values, key=self._values.__getitem__, default=None)

    def learn(self, cell: int, value: float | None, error: float = BETWEEN_PROCESSES) -> None:
        """Learn the value of a cell and its standard error; None if it failed or does not meet the limits."""
        self._running.discard(cell)
        self.left.discard(cell)
        self._surrogate = None
        if value is None:
            self._failed.add(cell)
        else:
            self._values[cell] = value
            self._errors[cell] = error

    def learn_trial(self, cell: int, config: TrialConfig, records: Sequence[Record]) -> None:
        """Learn the value of a cell from the rows of its trial."""
        self.ran += 1
        if cost := self._cost(config, records):
            self.learn(cell, log(cost.median), hypot(cost.error, BETWEEN_PROCESSES))
        else:
            self.learn(cell, None)

    def _cost(self, config: TrialConfig, records: Sequence[Record]) -> Value | None:
        """Return the cost in the rows of a trial; None if it failed or exceeds the limit."""
        assert self.aim, "a search of trials has an aim"
        values = {
            f"{row.phase}.{row.metric}": Value(*describe_samples(row.samples))
            for row in records
            if row.status == Status.OK and row.samples
        }
        name = self.aim.goal.first_of(values)
        peak = next((values[one].median for one in PEAKS if one in values), None)
        if name is None or (self.aim.peak is not None and peak is not None and peak >= self.aim.peak):
            return None
        environment = records[0].fingerprint
        hourly = self.aim.hourly(environment.device_name, environment.accelerator_type)
        return Value(*(self.aim.goal.cost(one, config, hourly) for one in values[name]))

    def withdraw(self, cell: int) -> None:
        """Take back a choice: the cell's trial does not begin."""
        self._running.discard(cell)
        self.left.add(cell)
        self._was_cut_short = True

    def choose(self, left: Collection[int]) -> int | None:
        """Return which of these cells to measure next, or None if none of them is likely to be better.

        The cell counts as running until `learn` hears of it.
        """
        self.is_settled = False
        cells = np.array(sorted(set(left) - self._running), dtype=np.int64)
        if not len(cells):
            return None
        chosen: int
        first = self._choose_first(cells)
        if first:
            best: list[int] = cells[np.argsort(self._prior[cells], kind="stable")].tolist()
            chosen, *self.likely = dict.fromkeys([*first, *best])
        else:
            forecast = self._forecast(cells)
            if self._doubt_in(forecast) < DOUBT:
                self.is_settled = not self._was_cut_short
                return None
            gain = forecast.runs * self._improvement(forecast) / self._seconds[cells]
            chosen, *self.likely = cells[np.argsort(-gain, kind="stable")].tolist()
        self._running.add(chosen)
        self.left.discard(chosen)
        return chosen

    def doubt(self) -> float:
        """Return at most how probable it is that a cell left is better than the leader by more than MARGIN."""
        if not self.left:
            return 0.0
        return self._doubt_in(self._forecast(np.array(sorted(self.left), dtype=np.int64))) if self._values else 1.0

    def _doubt_in(self, forecast: Forecast) -> float:
        assert self.leader is not None, "a search without a value has no leader"
        deviation = np.hypot(forecast.deviation, self._errors[self.leader])
        better = ndtr((self._goal_to_beat() - forecast.mean) / deviation)
        return float(1 - np.prod(1 - forecast.runs * better))

    def _forecast(self, cells: Indices) -> Forecast:
        surrogate = self._fit()
        mean, deviation = surrogate.mean_and_deviation(self._space.codes[cells], np.full(len(cells), -1))
        return Forecast(mean + self._prior[cells], deviation, self._chance_to_run(cells))

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
        """Return the next cells to try in order until every value of every axis was tried; none if it was and a
        value is known.
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
