"""What a search believes about all cells, from the results so far and the time model."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lmsweep.analysis.data.process_variation import Known
from lmsweep.orchestrator.features.best.cells.cells import Error, Processes
from lmsweep.orchestrator.features.best.standing import (
    CONTENDERS,
    SURROGATE_FREEDOM,
    Standing,
    believed,
    chance_of_better,
    standing,
)
from lmsweep.orchestrator.features.best.surrogate import Belief, Indices, Space, Surrogate
from lmsweep.trials.statistics.median_interval import Floats
from lmsweep.trials.statistics.variation import PRIORS, Kind

BETTER_MARGIN = 0.01
"""A cell counts as better only if its cost is lower by more than this share."""


class Forecast(NamedTuple):
    """What is expected of cells that were not measured."""

    mean: Floats
    deviation: Floats
    runs: Floats
    """Probability that the cell runs at all."""


class Results:
    """The results of a search so far. Values are natural logarithms of costs."""

    def __init__(self, space: Space, prior: Floats, variation: Known) -> None:
        """prior: expected values of the cells. variation: that between processes, from earlier results."""
        self.space = space
        self.prior = prior
        self.measured: dict[int, Processes] = {}
        self.failed: set[int] = set()
        self.parameters: Floats | None = None
        """Parameters of the last surrogate, from which the fit of the next one begins."""
        self._variation = variation

    def add(self, cell: int, processes: Processes | None) -> None:
        """Add what more processes of a cell measured; None if it failed or does not meet the limits."""
        if processes:
            before = self.measured.get(cell)
            self.measured[cell] = before + processes if before else processes
        elif cell not in self.measured:
            self.failed.add(cell)

    def errors(self) -> dict[int, Error]:
        """Return the error of each measured cell. Repetitions of these cells add to what is known of the variation."""
        repeats: dict[tuple[str, Kind], list[Processes]] = defaultdict(list)  # by device and kind of variation
        for one in self.measured.values():
            for kind in {*one.kinds}:
                repeats[one.device_name, kind].append(one.of(kind))  # its processes of this kind
        variations = {}
        for (device_name, kind), of_kind in repeats.items():
            squares = sum(one.squares for one in of_kind)
            freedom = sum(len(one.logs) - 1 for one in of_kind)  # a cell's centre takes one
            known = self._variation.get((device_name, kind), PRIORS[kind])
            variations[device_name, kind] = known.updated(squares, freedom)
        return {cell: one.error(variations[one.device_name, one.kind]) for cell, one in self.measured.items()}


class Beliefs:
    """What these results imply about all cells, while some of them run. At least one result must have a value."""

    def __init__(self, results: Results, running: Sequence[int] = ()) -> None:
        self.results = results
        self._running = [cell for cell in running if cell not in results.measured]
        self.cells = [*results.measured]
        """The measured cells. `errors` and `_centres` are in their order."""

    @cached_property
    def errors(self) -> dict[int, Error]:
        return self.results.errors()

    @cached_property
    def standing(self) -> Standing:
        """How surely the best measured cell is the best, without the time model, as the answer will report it."""
        space = replace(self.results.space, codes=self.results.space.codes[self.cells])
        errors = [*self.errors.values()]
        return standing(believed(space, self._centres, errors), errors)

    @property
    def leader(self) -> int:
        """The measured cell that is believed to be the best."""
        return self.cells[int(np.argmin(self.known.mean))]

    @cached_property
    def _centres(self) -> Floats:
        return np.array([one.centre for one in self.results.measured.values()])

    @cached_property
    def known(self) -> Belief:
        return self.of(self.cells)

    def of(self, cells: Sequence[int]) -> Belief:
        place = {cell: index for index, cell in enumerate(self.cells)}
        measured = np.array([place.get(cell, -1) for cell in cells], dtype=np.int64)
        belief = self._surrogate.believe(self.results.space.codes[[*cells]], measured)
        return Belief(belief.mean + self.results.prior[[*cells]], belief.covariance)

    def forecast(self, cells: Indices) -> Forecast:
        codes = self.results.space.codes[cells]
        mean, deviation = self._surrogate.mean_and_deviation(codes)
        return Forecast(mean + self.results.prior[cells], deviation, self._chance_to_run(cells))

    def gain(self, forecast: Forecast) -> Floats:
        """Return the expected improvement of each cell over `to_beat` (Jones, Schonlau and Welch, 1998)."""
        ahead = self.to_beat - forecast.mean
        scaled = ahead / forecast.deviation
        density = np.exp(-(scaled**2) / 2) / np.sqrt(2 * np.pi)
        improvement: Floats = forecast.deviation * (scaled * ndtr(scaled) + density)
        return forecast.runs * np.maximum(improvement, 1e-300)  # rounding may make the smallest negative

    def doubt(self, cells: Indices, forecast: Forecast) -> float:
        """Return how probable it is that any of these cells is better than the leader by more than BETTER_MARGIN."""
        ahead = (self.to_beat - forecast.mean) / forecast.deviation
        if ahead.max() > 0:
            return 1.0  # a cell is expected to be better, so the exact probability does not matter
        nearest = cells[np.argsort(-ahead)[:CONTENDERS]]
        return chance_of_better(self.of([self.leader, *nearest.tolist()]), BETTER_MARGIN, SURROGATE_FREEDOM)

    @property
    def to_beat(self) -> float:
        """The value below which a cell is better than the leader by more than BETTER_MARGIN."""
        return float(self.known.mean.min()) - BETTER_MARGIN

    @cached_property
    def _surrogate(self) -> Surrogate:
        """The surrogate of all values, less the prior. A running cell counts as measured, with its expected value and
        the usual error."""
        results, cells = self.results, np.array([*self.cells, *self._running], dtype=np.int64)
        codes, count = results.space.codes[cells], len(self.cells)
        values = self._centres - results.prior[cells[:count]]
        errors = np.array([one.deviation for one in self.errors.values()])
        surrogate = Surrogate(results.space, codes[:count], values, errors, start=results.parameters)
        results.parameters = surrogate.parameters  # where the next fit begins
        if not self._running:
            return surrogate
        expected, _ = surrogate.mean_and_deviation(codes[count:])
        errors = np.concatenate([errors, np.full(len(expected), np.median(errors))])
        return Surrogate(results.space, codes, np.concatenate([values, expected]), errors, start=results.parameters)

    def _chance_to_run(self, cells: Indices) -> Floats:
        """Return the probability that each cell runs: the lowest of the values on its axes."""
        codes, failures = self.results.space.codes, [*self.results.failed]
        chance = np.ones(len(cells))
        if not failures:
            return chance
        for place in range(codes.shape[1]):
            failed = Counter(codes[failures, place].tolist())
            worked = Counter(codes[self.cells, place].tolist())
            # As if one more cell with this value had worked, so a lone failure only halves the probability.
            share = {code: (worked[code] + 1) / (worked[code] + failed[code] + 1) for code in failed}
            chance = np.minimum(chance, [share.get(code, 1.0) for code in codes[cells, place].tolist()])
        return chance
