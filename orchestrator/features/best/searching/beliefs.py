"""What a search believes about all cells, from the results so far and the time model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lmsweep.analysis.cells.cells import Error, Processes
from lmsweep.orchestrator.features.best.standing import CONTENDERS, TAIL, Standing, believed, chance_of_better, standing
from lmsweep.orchestrator.features.best.surrogate import Belief, Indices, Space, Surrogate
from lmsweep.trials.statistics.median_interval import Floats
from lmsweep.trials.statistics.variation import Kind, Variation

MARGIN = 0.01
"""A cell counts as better only if it is better by more than this share."""


class Forecast(NamedTuple):
    """What is expected of cells that were not measured."""

    mean: Floats
    deviation: Floats
    runs: Floats
    """Probability that the cell runs at all."""


class Results:
    """The results of a search so far. Values are natural logarithms of costs."""

    def __init__(self, space: Space, prior: Floats, variations: Mapping[Kind, Variation]) -> None:
        self.space = space
        self.prior = prior
        self.measured: dict[int, Processes] = {}
        self.failed: set[int] = set()
        self.parameters: Floats | None = None
        """Of the last surrogate, from which the next one begins."""
        self._variations = variations

    def add(self, cell: int, found: Processes | None) -> None:
        """Add what more processes of a cell measured; None if it failed or does not meet the limits."""
        if found:
            before = self.measured[cell].logs if cell in self.measured else ()
            self.measured[cell] = replace(found, logs=(*before, *found.logs))
        elif cell not in self.measured:
            self.failed.add(cell)

    def errors(self) -> dict[int, Error]:
        variations = self._repeated()
        return {cell: one.error(variations[one.kind]) for cell, one in self.measured.items()}

    def _repeated(self) -> dict[Kind, Variation]:
        """Return the variation between processes of each kind, after the repetitions of the cells."""
        squares, freedom = dict.fromkeys(self._variations, 0.0), dict.fromkeys(self._variations, 0.0)
        for one in self.measured.values():
            if len(one.logs) > 1:
                squares[one.kind] += float(np.var(one.logs) * len(one.logs))
                freedom[one.kind] += len(one.logs) - 1
        return {kind: prior.updated(squares[kind], freedom[kind]) for kind, prior in self._variations.items()}


class Beliefs:
    """What these results say, while some cells run. The results must have a value."""

    def __init__(self, results: Results, running: Sequence[int] = ()) -> None:
        self.results = results
        self._running = [cell for cell in running if cell not in results.measured]
        self.cells = [*results.measured]

    @cached_property
    def errors(self) -> dict[int, Error]:
        return self.results.errors()

    @cached_property
    def standing(self) -> Standing:
        """How surely the best of the measured cells is the best, without the time model: as in the answer."""
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
        """The belief about the measured cells."""
        return self.of(self.cells)

    def of(self, cells: Sequence[int]) -> Belief:
        """Return the belief about the values of cells."""
        place = {cell: index for index, cell in enumerate(self.cells)}
        measured = np.array([place.get(cell, -1) for cell in cells], dtype=np.int64)
        belief = self._surrogate.believe(self.results.space.codes[[*cells]], measured)
        return Belief(belief.mean + self.results.prior[[*cells]], belief.covariance)

    def forecast(self, cells: Indices) -> Forecast:
        codes = self.results.space.codes[cells]
        mean, deviation = self._surrogate.mean_and_deviation(codes, np.full(len(cells), -1))
        return Forecast(mean + self.results.prior[cells], deviation, self._chance_to_run(cells))

    def gain(self, forecast: Forecast) -> Floats:
        """Return by how much each cell is expected to be better than the leader."""
        ahead = self.to_beat - forecast.mean
        scaled = ahead / forecast.deviation
        density = np.exp(-(scaled**2) / 2) / np.sqrt(2 * np.pi)
        improvement: Floats = forecast.deviation * (scaled * ndtr(scaled) + density)
        return forecast.runs * np.maximum(improvement, 1e-300)

    def doubt(self, cells: Indices, forecast: Forecast) -> float:
        """Return how probable it is that any of these cells is better than the leader by more than MARGIN."""
        ahead = (self.to_beat - forecast.mean) / forecast.deviation
        if ahead.max() > 0:
            return 1.0
        nearest = cells[np.argsort(-ahead)[:CONTENDERS]]
        return chance_of_better(self.of([self.leader, *nearest.tolist()]), MARGIN, TAIL)

    @property
    def to_beat(self) -> float:
        return float(self.known.mean.min()) - MARGIN

    @cached_property
    def _surrogate(self) -> Surrogate:
        """The surrogate of all values. A running cell counts as measured, with the value expected of it."""
        results, cells = self.results, np.array([*self.cells, *self._running], dtype=np.int64)
        codes, count = results.space.codes[cells], len(self.cells)
        values = self._centres - results.prior[cells[:count]]
        errors = np.array([one.deviation for one in self.errors.values()])
        found = Surrogate(results.space, codes[:count], values, errors, start=results.parameters)
        results.parameters = found.parameters
        if not self._running:
            return found
        expected, _ = found.mean_and_deviation(codes[count:], np.full(len(self._running), -1))
        errors = np.concatenate([errors, np.full(len(expected), np.median(errors))])
        return Surrogate(results.space, codes, np.concatenate([values, expected]), errors, start=results.parameters)

    def _chance_to_run(self, cells: Indices) -> Floats:
        """Return how probable it is that each cell runs: of its values, the one that failed most often decides."""
        codes, failures = self.results.space.codes, [*self.results.failed]
        chance = np.ones(len(cells))
        for place in range(codes.shape[1]) if failures else ():
            failed = Counter(codes[failures, place].tolist())
            worked = Counter(codes[self.cells, place].tolist())
            share = {code: (worked[code] + 1) / (worked[code] + failed[code] + 1) for code in failed}
            chance = np.minimum(chance, [share.get(code, 1.0) for code in codes[cells, place].tolist()])
        return chance
