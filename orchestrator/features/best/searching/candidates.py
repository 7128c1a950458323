"""The trials that a search may run, and what is expected of each before any has run."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmsweep.analysis.data.process_variation import Known
from lmsweep.orchestrator.features.best.cell_costs import keeps_limit, key_of
from lmsweep.orchestrator.features.best.cells.cell_axes import DEVICE, axes_of
from lmsweep.orchestrator.features.best.cells.cells import Cell
from lmsweep.orchestrator.features.best.cells.goal import Aim, Goal
from lmsweep.orchestrator.features.best.searching.search import Search
from lmsweep.orchestrator.features.best.surrogate import Space
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan import Plan, Planned, PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimate, graph_seconds, step_seconds
from lmsweep.orchestrator.predicting.device_rates import DeviceRates
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.spec.config import Trial, TrialConfig


@dataclass(frozen=True)
class Candidates:
    """The trials of a plan, divided by their part in the search."""

    plan: Plan
    """The plan, without the trials that the search must not run."""
    known: tuple[Cell, ...]
    """The cells that the store has."""
    over_limit: int
    """Number of cells whose predicted peak exceeds the limit."""
    unknown_peak: int
    """Number of cells that do not run because their peak would not be known."""


def candidates_of(planned: Planned, cells: Sequence[Cell], aim: Aim, peaks: Mapping[int, float]) -> Candidates:
    """Sort the trials of a plan. Several of them measure the same cell, each in one process. cells: what the store has
    of them. peaks: predicted bytes, by index in the plan."""
    stored = {(key_of(cell.config), cell.environment_id): cell for cell in cells if cell.cost(aim) is not None}
    workload = aim.goal.workload
    seen = set(stored)  # and the cells of the trials kept so far
    kept: list[PlannedTrial] = []
    over_limit, unknown_peak = set[tuple[str, str]](), set[tuple[str, str]]()
    for planned_trial in planned.plan.trials:
        key, peak, workloads = _key_of(planned_trial), peaks.get(planned_trial.index), planned_trial.trial.workloads
        if planned_trial.action != "run":  # stored already, or not able to run
            seen.add(key)
            kept.append(planned_trial)
        elif key in seen:
            # The search may repeat a seen cell, but only by the goal's workload; `lmsweep run` measures the others.
            if workload in workloads:
                kept.append(replace(planned_trial, trial=replace(planned_trial.trial, workloads=(workload,))))
        elif aim.peak is not None and peak is not None and peak >= aim.peak:
            over_limit.add(key)
        elif aim.peak is not None and peak is None and "memory" not in workloads:
            unknown_peak.add(key)
        else:  # the first trial of a cell
            seen.add(key)
            kept.append(planned_trial)
    plan = replace(planned.plan, trials=tuple(kept))
    return Candidates(plan, tuple(stored.values()), len(over_limit), len(unknown_peak))


def predicted_peaks(trials: Sequence[PlannedTrial], predictions: Predictions | None) -> dict[int, float]:
    """Return the predicted peak bytes of the trials whose memory can be predicted, by index in the plan."""
    if predictions is None:
        return {}
    pairs = ((one.index, predictions.of(one.trial, one.environment.device_name)) for one in trials)
    return {index: float(one.peak) for index, one in pairs if isinstance(one, Prediction)}


def predicted_peaks_of(cells: Sequence[Cell]) -> dict[str, float]:
    """Return the predicted peak bytes of measured cells, by `key_of` their configuration."""
    known = [cell for cell in cells if not cell.config.references]  # a store does not say where the user's code is
    trials = {cell.config: Trial(config=cell.config, workloads=("timing",), sweep="") for cell in known}
    predictions = Predictions(trials.values(), each=True)
    pairs = ((cell, predictions.of(trials[cell.config], cell.environment.device_name)) for cell in known)
    return {key_of(cell.config): float(one.peak) for cell, one in pairs if isinstance(one, Prediction)}


def search_of(
    to_run: Sequence[PlannedTrial],
    known: Sequence[Cell],
    aim: Aim,
    *,
    estimates: Mapping[int, Estimate],
    peaks: Mapping[int, float],
    variation: Known | None = None,
) -> Search:
    """Return a search whose positions are those of the trials; several may measure the same cell.

    estimates, peaks: durations and predicted bytes, by the index of a trial in the plan. variation: between processes,
    as known before the search; without it, the shipped priors.
    """
    trials: dict[tuple[str, str], PlannedTrial] = {}
    """The first trial of each cell to run."""
    for trial in to_run:
        trials.setdefault(_key_of(trial), trial)
    stored = {(key_of(cell.config), cell.environment_id): cell for cell in known}
    only_known = {key: cell for key, cell in stored.items() if key not in trials}
    numbers = {key: number for number, key in enumerate([*trials, *only_known])}
    """Key of a cell -> its place in all of these: `subjects`, `seconds` and `prior`."""
    subjects = [_Subject(one.trial.config, one.environment, peaks.get(one.index)) for one in trials.values()]
    subjects += [_Subject(one.config, one.environment, one.predicted_peak) for one in only_known.values()]
    seconds = [_seconds(one, estimates[one.index]) for one in trials.values()]
    seconds += [1.0] * len(only_known)  # which do not run
    space, prior = _space(subjects), _prior(subjects, aim)
    cells = [numbers[_key_of(one)] for one in to_run]
    search = Search(space, prior=prior, seconds=np.array(seconds), aim=aim, cells=cells, known=variation)
    for key, cell in stored.items():
        cost = cell.cost(aim)
        # None: the cell has no value, or exceeds the limit, so that it cannot be the best.
        processes = cost.processes if cost and keeps_limit(cell, aim) else None
        search.learn(numbers[key], processes)
    return search


class _Subject(NamedTuple):
    """A cell of a search, measured or not."""

    config: TrialConfig
    environment: Fingerprint
    peak: float | None
    """Predicted bytes."""


def _space(subjects: Sequence[_Subject]) -> Space:
    """Return the cells as points: by their device, and by every other axis."""
    names = [name for name in axes_of([one.config for one in subjects]) if name != DEVICE]
    points = [[one.environment.device_name, *(getattr(one.config, name) for name in names)] for one in subjects]
    return Space.of([DEVICE, *names], points)


def _seconds(planned: PlannedTrial, estimate: Estimate) -> float:
    """Return how long a trial takes with the compilation of its graph, which a search has to wait for."""
    compiling = graph_seconds(planned.trial.config) if estimate.is_new else 0.0
    return max(estimate.seconds + compiling, 1e-3)


def _prior(subjects: Sequence[_Subject], aim: Aim) -> NDArray[np.float64]:
    """Return the expected logarithm of the cost of each cell; of an unknown one the mean of the others."""
    rates = DeviceRates()
    expected = [_expected(one, aim, rates) for one in subjects]
    mean = statistics.fmean([one for one in expected if one is not None] or [0.0])
    return np.array([mean if one is None else one for one in expected])


def _expected(one: _Subject, aim: Aim, rates: DeviceRates) -> float | None:
    """Return the expected logarithm of the cost, by the prediction of a step or of memory."""
    config, environment = one.config, one.environment
    if aim.goal is Goal.MEMORY:
        return log(one.peak) if one.peak else None
    known = rates.known(environment.device_name, environment.device_memory)
    seconds = step_seconds(config, known or rates.usual(config.device_type))
    if not seconds:
        return None
    hourly = aim.hourly(environment.device_name, environment.accelerator_type)
    return log(aim.goal.cost(seconds, config, hourly))


def _key_of(one: PlannedTrial) -> tuple[str, str]:
    return key_of(one.trial.config), environment_id(one.environment, one.trial.config.software)
