"""The plan: which trials of a sweep will run, and why the others will not."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from lmsweep.orchestrator.cluster.autoscaler import recall
from lmsweep.orchestrator.cluster.nodes import Node, missing_environment
from lmsweep.orchestrator.cluster.placement import Placement, able_nodes, place
from lmsweep.orchestrator.planning.memory_budget import budget, why_not
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.sweep.sweep import Sweep
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.identity import measurement_id, trial_id
from lmsweep.trials.store.store import Store

Action = Literal["run", "stored", "predicted_oom", "unsupported"]


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """A trial and what will be done about it."""

    trial: Trial
    """With `action` run, the workloads that are still to be measured; else those that were asked for."""
    trial_id: str
    action: Action
    reason: str | None
    """Why it does not run."""
    environment: Fingerprint
    """Where it would run; the first of several."""
    placement: Placement | None = None
    """What it asks Ray for; None where it does not run."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    sweep: str
    trials: tuple[PlannedTrial, ...]
    """In the order of the sweep file, eager before compiled."""

    @property
    def to_run(self) -> list[PlannedTrial]:
        return [planned for planned in self.trials if planned.action == "run"]

    def count(self, action: Action) -> int:
        """How many trials have this action."""
        return sum(planned.action == action for planned in self.trials)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan and what it was made with."""

    plan: Plan
    store: Store
    nodes: list[Node]
    predictions: Predictions | None
    budget: str | None = None
    """How long running it may take, where the command or the sweep says so."""


def make_plan(
    sweep: Sweep,
    nodes: list[Node],
    store: Store,
    *,
    retry: frozenset[Status] = frozenset(),
    fresh: bool = False,
    predictions: Predictions | None = None,
) -> Plan:
    """Decides about every trial of the sweep.

    What the store holds for the environment of the node that would run it is not measured again, unless its status is
    not final or named in `retry`, or `fresh` asks for everything anew. Without `predictions`, trials run whether they
    fit or not.
    """
    nodes = recall(nodes, store)
    known = {} if fresh else store.statuses()
    again = retry | {Status.PREDICTED_OOM} if predictions is None else retry
    done = {key for key, status in known.items() if Status(status).is_final and status not in again}
    placed = [trial for asked in sweep.trials for trial in _on_every_accelerator(asked, nodes)]
    decisions = _Decisions(nodes=nodes, done=done, predictions=predictions)
    decisions.settle(placed)
    planned = [decided for trial in placed if (decided := decisions.about(trial))]
    # Compiled trials share a process as long as they follow one another.
    planned.sort(key=lambda one: one.trial.config.compiles)
    return Plan(sweep=sweep.name, trials=tuple(planned))


@dataclass(frozen=True, kw_only=True)
class _Promise:
    """That a trial will answer for a measurement."""

    by: frozenset[str]
    """The environments, one of which will have the answer."""
    within: frozenset[str] | None = None
    """The only environments that it says anything of; None where it is an answer wherever it comes from."""

    def answers(self, environments: Collection[str]) -> bool:
        """Whether it is an answer for a trial that may meet any of these."""
        return self.by <= set(environments) and (self.within is None or self.within >= set(environments))


class _Decisions:
    """Decides trial by trial, and remembers what has been decided."""

    def __init__(self, *, nodes: list[Node], done: set[tuple[str, str]], predictions: Predictions | None) -> None:
        self._nodes = nodes
        self._done = done
        self._predictions = predictions
        self._places: dict[tuple[str, int, int], tuple[list[Node] | str, dict[str, Fingerprint]]] = {}
        self._promises: dict[str, list[_Promise]] = {}  # by measurement_id

    def settle(self, trials: list[Trial]) -> None:
        """Has all the questions of what fits answered at once that take a simulation."""
        if self._predictions:
            rooms = (
                (trial, environment.device_name, room)
                for trial in trials
                for environment in self._where(trial.config)[1].values()
                if (room := budget(trial.config, environment))
            )
            self._predictions.settle(rooms)

    def about(self, trial: Trial) -> PlannedTrial | None:
        """What will be done about the trial; None where trials before it, asked for under another name of the same
        device, will do all that it asks for.
        """
        config = trial.config
        able, environments = self._where(config)
        ids = {name: measurement_id(config, name) for name in trial.workloads}
        asked = tuple(name for name in ids if not self._is_promised(ids[name], environments))
        if not asked:
            return None
        trial = replace(trial, workloads=asked)

        def promise(names: Collection[str], by: Collection[str], within: frozenset[str] | None = None) -> None:
            for name in names:
                self._promises.setdefault(ids[name], []).append(_Promise(by=frozenset(by), within=within))

        def planned(action: Action, reason: str | None, trial: Trial, environment: Fingerprint) -> PlannedTrial:
            return PlannedTrial(
                trial=trial, trial_id=trial_id(config), action=action, reason=reason, environment=environment
            )

        first = next(iter(environments.values()))
        measured_on = {
            name: environment
            for name in trial.workloads
            for key, environment in environments.items()
            if (key, ids[name]) in self._done
        }
        left = tuple(name for name in trial.workloads if name not in measured_on)
        promise(measured_on, environments)
        if not left:
            there = measured_on[trial.workloads[0]]
            words = able if isinstance(able, str) else f"already measured on {there.device_name}"
            return planned("stored", words, trial, there)
        if isinstance(able, str):
            promise(left, environments)
            return planned("unsupported", able, trial, first)
        rest = replace(trial, workloads=left)
        reasons = self._why_not(rest, environments)
        fits = [node for node in able if reasons[environment_id(node.environments[config.device_type])] is None]
        if not fits:
            promise(left, {next(iter(environments))}, within=frozenset(environments))
            return planned("predicted_oom", next(iter(reasons.values())), rest, first)
        promise(left, {environment_id(node.environments[config.device_type]) for node in fits})
        found = planned("run", None, rest, fits[0].environments[config.device_type])
        return replace(found, placement=place(config, fits, self._nodes))

    def _where(self, config: TrialConfig) -> tuple[list[Node] | str, dict[str, Fingerprint]]:
        """The nodes that can hold the trial, or why none can, and what it would meet there."""
        key = (config.device, config.world_size, config.nodes)
        if key not in self._places:
            able = able_nodes(config, self._nodes)
            if isinstance(able, str):
                there = [missing_environment(config, self._nodes)]
            else:
                there = [node.environments[config.device_type] for node in able]
            self._places[key] = able, {environment_id(one): one for one in there}
        return self._places[key]

    def _is_promised(self, measurement: str, environments: Collection[str]) -> bool:
        """Whether a trial before this one answers for it."""
        return any(promise.answers(environments) for promise in self._promises.get(measurement, ()))

    def _why_not(self, trial: Trial, environments: dict[str, Fingerprint]) -> dict[str, str | None]:
        """For each environment why the trial does not fit there, or None."""
        return {key: self._why_not_in(trial, environment) for key, environment in environments.items()}

    def _why_not_in(self, trial: Trial, environment: Fingerprint) -> str | None:
        prediction = self._predictions.of(trial, environment.device_name) if self._predictions else None
        room = budget(trial.config, environment)
        if not (self._predictions and room) or isinstance(prediction, str | None):
            return None
        verdict = (
            self._predictions.verdict(trial, environment.device_name, room)
            if isinstance(prediction, Prediction)
            else None
        )
        return why_not(prediction, room, verdict)


def _on_every_accelerator(trial: Trial, nodes: list[Node]) -> list[Trial]:
    """One trial per accelerator type for ``cuda:*``, else the trial itself."""
    if trial.config.device != "cuda:*":
        return [trial]
    types = sorted({node.accelerator_type for node in nodes if node.accelerator_type})
    places = [f"cuda:{name}" for name in types] or ["cuda"]
    return [replace(trial, config=replace(trial.config, device=place)) for place in places]
