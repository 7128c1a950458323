"""A search over the trials of a plan: what is known of them before it begins, and what their results say."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, log

import numpy as np

from lmsweep.analysis.best.answer import DEVICE, axes_of
from lmsweep.analysis.best.cells import BETWEEN_PROCESSES, Cell, Value, key_of
from lmsweep.analysis.best.goal import Aim, Goal
from lmsweep.analysis.best.surrogate import Space
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan import Plan, Planned, PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimate
from lmsweep.orchestrator.planning.time_model import NOMINAL, datasheet_of, graph_seconds, step_seconds
from lmsweep.orchestrator.searching.search import Search
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.analytic.roofline_time import device_seconds
from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.results.metrics import PEAKS
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.statistics.sample_stats import describe_samples


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The trials of a plan, sorted by what the search does with them."""

    plan: Plan
    """The plan without the trials that the search must not run."""
    known: tuple[Cell, ...]
    """Cells that the store has."""
    over_limit: int
    """Trials whose predicted peak exceeds the limit."""
    unknown_peak: int
    """Trials that are not run because their peak would not be known."""


def candidates_of(planned: Planned, cells: Sequence[Cell], aim: Aim, peaks: Mapping[int, float]) -> Candidates:
    """Sort the trials of a plan. cells: what the store has of them. peaks: predicted bytes, by index in the plan."""
    stored = {_key(cell.config, cell.environment_id): cell for cell in cells if cell.cost(aim) is not None}
    seen = set(stored)
    kept: list[PlannedTrial] = []
    over_limit = unknown_peak = 0
    for one in planned.plan.trials:
        key = _key(one.trial.config, environment_id(one.environment, one.trial.config.software))
        if one.action == "run" and key in seen:
            continue  # only other workloads or further processes of it are missing, which a run measures
        seen.add(key)
        if one.action == "run" and aim.peak is not None:
            peak = peaks.get(one.index)
            if peak is not None and peak >= aim.peak:
                over_limit += 1
                continue
            if peak is None and "memory" not in one.trial.workloads:
                unknown_peak += 1
                continue
        kept.append(one)
    return Candidates(
        plan=replace(planned.plan, trials=tuple(kept)),
        known=tuple(stored.values()),
        over_limit=over_limit,
        unknown_peak=unknown_peak,
    )


def predicted_peaks(trials: Sequence[PlannedTrial], predictions: Predictions | None) -> dict[int, float]:
    """Return the predicted peak bytes of the trials whose memory can be predicted, by index in the plan."""
    if predictions is None:
        return {}
    found = ((one.index, predictions.of(one.trial, one.environment.device_name)) for one in trials)
    return {index: float(one.peak) for index, one in found if isinstance(one, Prediction)}


def predicted_peaks_of(cells: Sequence[Cell]) -> dict[str, float]:
    """Return the predicted peak bytes of measured cells, by `key_of` their configuration."""
    own_free = [cell for cell in cells if not cell.config.references]  # where the code is now is not known
    trials = {cell.config: Trial(config=cell.config, workloads=("timing",), sweep="") for cell in own_free}
    predictions = Predictions(trials.values(), each=True)
    found = {
        key_of(cell.config): predictions.of(trials[cell.config], cell.environment.device_name) for cell in own_free
    }
    return {key: float(one.peak) for key, one in found.items() if isinstance(one, Prediction)}


def measurements_of(plan: Plan) -> set[str]:
    """Return the identifiers of everything that the answer may be made from."""
    names = ("timing", "energy", "memory")
    return {measurement_id(one.trial.config, name) for one in plan.trials for name in names}


class PlanSearch:
    """Chooses trials by their position in the order of the run."""

    def __init__(
        self,
        to_run: Sequence[PlannedTrial],
        known: Sequence[Cell],
        aim: Aim,
        *,
        estimates: Mapping[int, Estimate],
        peaks: Mapping[int, float],
    ) -> None:
        """`estimates` and `peaks` (predicted bytes) are by the index of a trial in the plan."""
        self.aim = aim
        self._to_run = to_run
        self._positions = {one.index: position for position, one in enumerate(to_run)}
        configs = [*(one.trial.config for one in to_run), *(cell.config for cell in known)]
        devices = [*(one.environment for one in to_run), *(cell.environment for cell in known)]
        names = [DEVICE, *(name for name in axes_of(configs) if name != DEVICE)]
        points = [
            [device.device_name, *(getattr(config, name) for name in names[1:])]
            for config, device in zip(configs, devices, strict=True)
        ]
        prior = [
            *(self._expected(one, peaks) for one in to_run),
            *(self._expected_of_cell(cell) for cell in known),
        ]
        unknown = statistics.fmean([one for one in prior if one is not None] or [0.0])
        seconds = [estimates[one.index].seconds + _compiling(one, estimates) for one in to_run]
        self._search = Search(
            Space.of(names, points),
            prior=np.array([unknown if one is None else one for one in prior]),
            seconds=np.array([*(max(one, 1e-3) for one in seconds), *([1.0] * len(known))]),
        )
        for place, cell in enumerate(known, start=len(to_run)):
            cost = cell.cost(aim)
            if cost and cell.keeps(aim):
                self._search.learn(place, log(cost.median), cell.error(aim))
            else:
                self._search.learn(place, None)
        self.left = set(range(len(to_run)))
        """The positions of the trials that have not begun."""
        self.is_settled = False
        """Whether the search ended because no other trial is likely to be better."""
        self._was_cut_short = False
        """Whether a trial that it chose did not begin."""
        self.ran = 0
        """How many trials have ended."""

    def choose(self, positions: Collection[int]) -> int | None:
        """Return the position of the next trial, or None if none of these is likely to be better."""
        chosen = self._search.choose(positions)
        if chosen is None:
            self.is_settled = bool(positions) and not self._was_cut_short
        else:
            self.is_settled = False
            self.left.discard(chosen)
        return chosen

    @property
    def likely(self) -> list[int]:
        """The positions most likely to be chosen next, the likeliest first."""
        return self._search.likely

    def withdraw(self, position: int) -> None:
        """Take back a choice: the trial does not begin."""
        self._search.withdraw(position)
        self.left.add(position)
        self._was_cut_short = True

    def learn(self, planned: PlannedTrial, records: Sequence[Record]) -> None:
        """Learn from the rows of a trial that has ended."""
        self.ran += 1
        position = self._positions[planned.index]
        cost = self._cost(planned.trial.config, records)
        if cost is None:
            self._search.learn(position, None)
        else:
            self._search.learn(position, log(cost.median), hypot(cost.error, BETWEEN_PROCESSES))

    def doubt(self) -> float:
        """Return at most how probable it is that a trial that did not run is better by more than MARGIN."""
        return self._search.doubt(self.left)

    def _cost(self, config: TrialConfig, records: Sequence[Record]) -> Value | None:
        """Return the cost in the rows of a trial; None if it failed or exceeds the limit."""
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
        tokens = config.batch_size * config.context_length * config.world_size
        return Value(*(self.aim.goal.cost(one, tokens=tokens, hourly=hourly) for one in values[name]))

    def _expected(self, planned: PlannedTrial, peaks: Mapping[int, float]) -> float | None:
        """Return the logarithm of the cost that the time model, or the prediction of memory, expects."""
        config, environment = planned.trial.config, planned.environment
        if self.aim.goal is Goal.MEMORY:
            return log(peaks[planned.index]) if planned.index in peaks else None
        return self._log_cost(self._modelled(config, environment), config, environment)

    def _expected_of_cell(self, cell: Cell) -> float | None:
        if self.aim.goal is Goal.MEMORY:
            return log(cell.predicted_peak) if cell.predicted_peak else None
        return self._log_cost(self._modelled(cell.config, cell.environment), cell.config, cell.environment)

    def _modelled(self, config: TrialConfig, environment: Fingerprint) -> float:
        """Return the seconds that the goal counts of a step, by the time model; 0 if its work is not known."""
        device = datasheet_of(environment) or NOMINAL[config.device_type]
        # Money counts device time, which is measured on CUDA alone and does not wait for the host's launches.
        is_busy_time = self.aim.goal is Goal.MONEY and config.device_type == "cuda"
        return device_seconds(config, device) if is_busy_time else step_seconds(config, device)

    def _log_cost(self, seconds: float, config: TrialConfig, environment: Fingerprint) -> float | None:
        if not seconds:
            return None
        tokens = config.batch_size * config.context_length * config.world_size
        hourly = self.aim.hourly(environment.device_name, environment.accelerator_type)
        return log(self.aim.goal.cost(seconds, tokens=tokens, hourly=hourly))


def _compiling(planned: PlannedTrial, estimates: Mapping[int, Estimate]) -> float:
    """Return the seconds to compile the trial's graph, which nothing hides from a search."""
    return graph_seconds(planned.trial.config) if estimates[planned.index].is_new else 0.0


def _key(config: TrialConfig, environment: str) -> tuple[str, str]:
    return key_of(config), environment
