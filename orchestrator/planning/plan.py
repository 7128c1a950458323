"""Plans a sweep: decides which trials will run, and why the others will not."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lmsweep.orchestrator.cluster.autoscaler import recall
from lmsweep.orchestrator.cluster.nodes import Node, missing_environment
from lmsweep.orchestrator.cluster.placement import Placement, able_nodes, place
from lmsweep.orchestrator.cluster.refusal import Refusal
from lmsweep.orchestrator.planning.memory_budget import budget, why_not
from lmsweep.orchestrator.planning.memory_predictions import FitQuestion, Predictions
from lmsweep.orchestrator.sweep.ranges import seconds_of
from lmsweep.orchestrator.sweep.sweep import Sweep
from lmsweep.orchestrator.terminal import counting
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.code.digest import code_digest
from lmsweep.trials.isolation.standby import Standby
from lmsweep.trials.results.environment import Fingerprint, environment_id, expected_with
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.identity import measurement_id, trial_id
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.store.store import Outcome, Store

Action = Literal["run", "stored", "predicted_oom", "unsupported"]


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """A trial, and whether it will run."""

    index: int
    """Its position in the plan."""
    trial: Trial
    """If `action` is run or predicted_oom, its workloads are those still to be measured; else those requested."""
    trial_id: str
    action: Action
    reason: str | None
    """Why it does not run; None if it does."""
    environment: Fingerprint
    """Where it would run; if there are several environments, the first."""
    placement: Placement | None = None
    """What it asks Ray for; None if it does not run."""
    process: int = 1
    """Which of the processes that measure it this is, counted from 1. Those with the numbers before it are in the
    store, or come earlier in the plan."""

    @property
    def required_placement(self) -> Placement:
        """The placement of a trial that runs."""
        assert self.placement is not None, "a trial that runs is placed"
        return self.placement


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A decision about every trial of a sweep. A trial that several processes measure is there once for each."""

    sweep: str
    """Its name."""
    trials: tuple[PlannedTrial, ...]
    """In the order of the sweep file, eager trials before compiled ones, the processes of a trial in a row."""

    @property
    def to_run(self) -> list[PlannedTrial]:
        """The trials that will run."""
        return [planned for planned in self.trials if planned.action == "run"]

    def count(self, action: Action) -> int:
        """Return the number of trials with this action."""
        return sum(planned.action == action for planned in self.trials)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan, and what it was made with."""

    plan: Plan
    store: Store
    nodes: list[Node]
    predictions: Predictions | None
    """None with `--no-predict`."""
    budget: str | None = None
    """The time budget of the run (30m, 2h, ...), if the command or the sweep gives one."""
    ends_in: float | None = None
    """Seconds from the reading of the sweep to the end time of the run, if the command gives one."""
    standby: Standby | None = None
    """Trial servers that were started while the plan was made; None if it was not certain that trials would run."""

    @property
    def seconds_for_run(self) -> float | None:
        """How long the run may take; None if nothing limits it."""
        limits = [seconds_of(self.budget)] if self.budget else []
        return min([*limits, *([self.ends_in] if self.ends_in is not None else [])], default=None)


def make_plan(
    sweep: Sweep,
    nodes: list[Node],
    store: Store,
    *,
    retry: frozenset[Status] = frozenset(),
    fresh: bool = False,
    predictions: Predictions | None = None,
) -> Plan:
    """Decide about every trial of the sweep.

    A measurement is skipped if the store has a final status for it in the environment of a node that would run the
    trial; if that status is ok, only if as many processes measured it as are asked for. It is repeated anyway if the
    status is in `retry` or `fresh` is set. Without `predictions`, trials run whether or not they fit in memory.
    """
    nodes = recall(nodes, store)
    known = {} if fresh else store.outcomes()
    again = retry | {Status.PREDICTED_OOM} if predictions is None else retry
    done = {key: one for key, one in known.items() if Status(one.status).is_final and one.status not in again}
    placed = [trial for asked in sweep.trials for trial in _on_every_accelerator(asked, nodes)]
    placed.sort(key=lambda trial: trial.config.compiles)  # consecutive compiled trials share a process
    decisions = _Decisions(nodes=nodes, done=done, predictions=predictions)
    decisions.settle(placed)
    planned: list[PlannedTrial] = []
    for trial in counting(placed, f"decided about {{}} of {len(placed)} trials"):
        planned += decisions.about(trial, index=len(planned))
    return Plan(sweep=sweep.name, trials=tuple(planned))


@dataclass(frozen=True, kw_only=True)
class _Promise:
    """A measurement that an earlier trial of the plan will provide. Environments are given by their ids."""

    by: frozenset[str]
    """It will be measured in one of these environments."""
    within: frozenset[str] | None = None
    """The promise holds only for trials whose environments are all among these; None: no such limit."""

    def answers(self, environments: Collection[str]) -> bool:
        """Return whether it holds for a trial that may run in any of these environments."""
        return self.by <= set(environments) and (self.within is None or self.within >= set(environments))


@dataclass(frozen=True, kw_only=True)
class _Places:
    """Where a trial can run."""

    able: list[Node] | Refusal
    """The nodes that can hold it, or why none can."""
    environments: dict[str, Fingerprint]
    """Its environments there, by environment_id."""


class _Decisions:
    """Decides about one trial after another, and remembers what earlier trials will measure."""

    def __init__(
        self, *, nodes: list[Node], done: dict[tuple[str, str], Outcome], predictions: Predictions | None
    ) -> None:
        self._nodes = nodes
        self._done = done
        self._predictions = predictions
        self._places: dict[tuple[str, int, int, str | None], _Places] = {}  # by device, world_size, nodes and software
        self._digests: dict[tuple[tuple[str, ...], Code], str | None] = {}
        self._promises: dict[str, list[_Promise]] = {}  # by measurement_id

    def settle(self, trials: Sequence[Trial]) -> None:
        """Find out for all trials at once which of them fit, where only a simulation of the allocator can tell."""
        if self._predictions:
            questions = (
                FitQuestion(trial=trial, device_name=environment.device_name, budget=room)
                for trial in trials
                for environment in self._where(trial.config).environments.values()
                if (room := budget(trial.config, environment))
            )
            self._predictions.settle(questions)

    def about(self, trial: Trial, *, index: int) -> list[PlannedTrial]:
        """Return the decision, once for each process that will measure the trial.

        The list is empty if earlier trials measure all of it, under another name of the same device.
        """
        config = trial.config
        places = self._where(config)
        able, environments = places.able, places.environments
        if trial.code:
            environments = self._with_code(environments, trial, trial.code)
        ids = {name: measurement_id(config, name) for name in trial.workloads}
        asked = tuple(name for name in ids if not self._is_promised(ids[name], environments))
        if not asked:
            return []
        trial = replace(trial, workloads=asked)

        def promise(names: Collection[str], by: Collection[str], within: frozenset[str] | None = None) -> None:
            for name in names:
                self._promises.setdefault(ids[name], []).append(_Promise(by=frozenset(by), within=within))

        def planned(action: Action, reason: str | None, trial: Trial, environment: Fingerprint) -> PlannedTrial:
            return PlannedTrial(
                index=index,
                trial=trial,
                trial_id=trial_id(config),
                action=action,
                reason=reason,
                environment=environment,
            )

        first = next(iter(environments.values()))
        measured_on = {
            name: environment
            for name in trial.workloads
            for key, environment in environments.items()
            if self._has_enough(key, ids[name], config)
        }
        left = tuple(name for name in trial.workloads if name not in measured_on)
        promise(measured_on, environments)
        if not left:
            environment = measured_on[trial.workloads[0]]
            reason = able.reason if isinstance(able, Refusal) else f"already measured on {environment.device_name}"
            return [planned("stored", reason, trial, environment)]
        if isinstance(able, Refusal):
            promise(left, environments)
            return [planned("unsupported", able.reason, trial, first)]
        rest = replace(trial, workloads=left, flops=self._predictions.flops(trial) if self._predictions else None)
        reasons = self._why_not(rest, environments)
        met = dict(zip(places.environments, environments, strict=True))

        def met_on(node: Node) -> str:
            return met[_id_of(node.environments[config.device_type], config)]

        fits = [node for node in able if reasons[met_on(node)] is None]
        if not fits:
            promise(left, {next(iter(environments))}, within=frozenset(environments))
            return [planned("predicted_oom", next(iter(reasons.values())), rest, first)]
        stored = {
            key: {name: self._processes(key, ids[name]) for name in left} for key in dict.fromkeys(map(met_on, fits))
        }
        if config.processes > 1:  # only processes in one environment can be pooled: that in which most are stored
            chosen = max(stored, key=lambda key: sum(stored[key].values()))
            fits = [node for node in fits if met_on(node) == chosen]
        there = met_on(fits[0])
        promise(left, set(map(met_on, fits)))
        found = planned("run", None, rest, environments[there])
        found = replace(found, placement=place(config, fits, self._nodes))
        return [
            replace(found, index=index + place_in_line, trial=replace(rest, workloads=names), process=number)
            for place_in_line, number in enumerate(range(min(stored[there].values()) + 1, config.processes + 1))
            if (names := tuple(name for name in left if stored[there][name] < number))
        ]

    def _has_enough(self, environment: str, measurement: str, config: TrialConfig) -> bool:
        """Return whether no further process needs to measure it there: enough did, or it cannot run."""
        outcome = self._done.get((environment, measurement))
        return outcome is not None and (outcome.status != Status.OK or outcome.processes >= config.processes)

    def _processes(self, environment: str, measurement: str) -> int:
        """Return how many processes of a measurement in the store count."""
        outcome = self._done.get((environment, measurement))
        return outcome.processes if outcome else 0

    def _with_code(self, environments: dict[str, Fingerprint], trial: Trial, code: Code) -> dict[str, Fingerprint]:
        """Return the environments with the state of the user's code, in the same order."""
        key = (trial.references, code)
        if key not in self._digests:
            self._digests[key] = code_digest(trial.references, code)
        digest = self._digests[key]
        with_code = [
            replace(one, code_digest=digest, code_revision=code.revision, code_dirty=code.dirty)
            for one in environments.values()
        ]
        return {_id_of(one, trial.config): one for one in with_code}

    def _where(self, config: TrialConfig) -> _Places:
        key = (config.device, config.world_size, config.nodes, config.software)
        if key not in self._places:
            able = able_nodes(config, self._nodes)
            if isinstance(able, Refusal):
                there = [missing_environment(config, self._nodes)]
            else:
                there = [node.environments[config.device_type] for node in able]
            environments = {_id_of(one, config): expected_with(one, config.software) for one in there}
            self._places[key] = _Places(able=able, environments=environments)
        return self._places[key]

    def _is_promised(self, measurement: str, environments: Collection[str]) -> bool:
        """Return whether an earlier trial will measure it."""
        return any(promise.answers(environments) for promise in self._promises.get(measurement, ()))

    def _why_not(self, trial: Trial, environments: dict[str, Fingerprint]) -> dict[str, str | None]:
        """Return, by environment, why the trial does not fit there, or None if it does."""
        return {key: self._why_not_in(trial, environment) for key, environment in environments.items()}

    def _why_not_in(self, trial: Trial, environment: Fingerprint) -> str | None:
        prediction = self._predictions.of(trial, environment.device_name) if self._predictions else None
        room = budget(trial.config, environment)
        if not (self._predictions and room) or isinstance(prediction, Refusal | None):
            return None
        question = FitQuestion(trial=trial, device_name=environment.device_name, budget=room)
        verdict = self._predictions.verdict(question) if isinstance(prediction, Prediction) else None
        return why_not(prediction, room, verdict)


def _id_of(environment: Fingerprint, config: TrialConfig) -> str:
    """Return the environment_id of a trial in the environment that a node has installed."""
    return environment_id(environment, config.software)


def _on_every_accelerator(trial: Trial, nodes: list[Node]) -> list[Trial]:
    """Return one trial per accelerator type if the device is `cuda:*`, else the trial itself."""
    if trial.config.device != "cuda:*":
        return [trial]
    types = sorted({node.accelerator_type for node in nodes if node.accelerator_type})
    devices = [f"cuda:{name}" for name in types] or ["cuda"]
    return [replace(trial, config=replace(trial.config, device=device)) for device in devices]
