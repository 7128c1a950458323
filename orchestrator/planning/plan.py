"""Plans a sweep: decides which trials will run, and why the others will not."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Literal, NamedTuple, Self

from lmsweep.orchestrator.cluster.autoscaler import recall
from lmsweep.orchestrator.cluster.nodes import Node, Refusal, missing_environment
from lmsweep.orchestrator.cluster.placement import Placement, able_nodes, place
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.predicting.device_rates import datasheet_of
from lmsweep.orchestrator.sweep.ranges import TimeLimit
from lmsweep.orchestrator.sweep.sweep import Sweep
from lmsweep.orchestrator.terminal import counting
from lmsweep.trials.analytic.datasheets import capabilities_of
from lmsweep.trials.analytic.rates.rate_set import Network
from lmsweep.trials.code.digest import code_digest
from lmsweep.trials.isolation.standby import Standby
from lmsweep.trials.results.environment import Fingerprint, environment_id, expected_with
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Attempt, Row
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.identity import measurement_id, trial_id
from lmsweep.trials.spec.reference import Code
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.rules.device_rules import Capabilities, why_not_on
from lmsweep.trials.store.store import Outcome, Store

Action = Literal["run", "stored", "predicted_oom", "unsupported"]


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    index: int = 0
    """Position in the plan."""
    trial: Trial
    """Its workloads are those that the action is about."""
    trial_id: str
    action: Action
    reason: str | None
    """Why it does not run."""
    environment: Fingerprint
    """The environment in which it would run, or the first of several."""
    placement: Placement | None = None
    """Resources that it requests from Ray, if it runs."""
    process: int = 1
    """Which of the processes that measure it this is, counted from 1."""

    @property
    def slots(self) -> int:
        """How many trials like this run at once."""
        return self.placement.slots if self.placement else 1

    @property
    def required_placement(self) -> Placement:
        assert self.placement is not None, "a trial that runs is placed"
        return self.placement

    def failures(self, status: Status, error: str) -> list[Row]:
        attempt = Attempt.begin(self.trial)
        return [attempt.failure(name, status, error, self.environment) for name in self.trial.workloads]


def grouped(trials: Iterable[PlannedTrial], key: Callable[[PlannedTrial], Hashable]) -> Collection[list[PlannedTrial]]:
    """Return the trials, those with the same key together."""
    groups: dict[Hashable, list[PlannedTrial]] = {}
    for planned in trials:
        groups.setdefault(key(planned), []).append(planned)
    return groups.values()


@dataclass(frozen=True, kw_only=True)
class Plan:
    sweep: str
    trials: tuple[PlannedTrial, ...]
    """Eager ones before compiled ones, the processes of a trial in a row."""

    @property
    def to_run(self) -> list[PlannedTrial]:
        return [planned for planned in self.trials if planned.action == "run"]

    @property
    def software(self) -> list[str]:
        """The distinct software of the trials that will run, except what is installed."""
        return list(dict.fromkeys(filter(None, (planned.trial.config.software for planned in self.to_run))))

    def count(self, action: Action) -> int:
        return sum(planned.action == action for planned in self.trials)


@dataclass(frozen=True, kw_only=True)
class Planned:
    sweep: Sweep
    plan: Plan
    store: Store
    nodes: list[Node]
    network: Network | None = None
    """Network between nodes that do not exist yet (`--nodes`)."""
    predictions: Predictions | None
    """None with `--no-predict`."""
    limit: TimeLimit = TimeLimit()
    standby: Standby | None = None
    """Trial servers that were started while the plan was made."""


def make_plan(
    sweep: Sweep,
    nodes: list[Node],
    store: Store,
    *,
    retry: frozenset[Status] = frozenset(),
    fresh: bool = False,
    predictions: Predictions | None = None,
) -> Plan:
    """Decide about every trial; `fresh` and `retry` ignore results in the store, all or those of a status."""
    nodes = recall(nodes, store)
    known = {} if fresh else store.outcomes()
    # Without predictions, what an earlier plan predicted does not keep a trial from running either.
    ignored = retry | {Status.PREDICTED_OOM} if predictions is None else retry
    done = {key: one for key, one in known.items() if Status(one.status).is_final and one.status not in ignored}
    placed = [trial for asked in sweep.trials for trial in _on_every_accelerator(asked, nodes)]
    placed.sort(key=lambda trial: trial.config.compiles)  # consecutive compiled trials share a process
    decisions = _Decisions(nodes=nodes, done=done, predictions=predictions)
    decisions.settle(placed)
    counted = counting(placed, f"decided about {{}} of {len(placed)} trials")
    planned = enumerate(one for trial in counted for one in decisions.about(trial))
    return Plan(sweep=sweep.name, trials=tuple(replace(one, index=index) for index, one in planned))


UNKNOWN = Capabilities("this device", compute=(99, 0))
"""Capabilities that rule nothing out: of a GPU without a datasheet, and of a CPU, about which `why_not` decides."""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A result that the plan has already, so that a later trial of the same measurement need not make it.

    A later trial is covered if each place where the result may be is one of its own environments. Say `cuda` has the
    environments {A, B}, `cuda:H100` has {A} and `cuda:H200` has {B}:

    | earlier trial | `may_be_in` | `fails_in` | covers |
    |---|---|---|---|
    | `cuda:H100` runs in A | {A} | | `cuda:H100`, `cuda` |
    | `cuda` runs in A or B, as Ray chooses | {A, B} | | `cuda` |
    | `cuda:H100` does not fit into A | {A} | {A} | `cuda:H100`; not `cuda`, which may fit into B |
    """

    may_be_in: frozenset[str]
    """The environment_ids of all environments that the result may be of; of a failure, the first."""
    fails_in: frozenset[str] | None = None
    """The environment_ids of all environments in which it fails: in others it may run. None: it is no failure."""

    @classmethod
    def of_failure(cls, environments: Collection[str]) -> Self:
        """Return the promise of a failure in all of these environments, which is stored for the first alone."""
        return cls(may_be_in=frozenset({next(iter(environments))}), fails_in=frozenset(environments))

    def covers(self, environments: Collection[str]) -> bool:
        return self.may_be_in <= set(environments) and (self.fails_in is None or self.fails_in >= set(environments))


@dataclass(frozen=True, kw_only=True)
class Question:
    """What has to be decided about one trial."""

    trial: Trial
    """The trial, with the workloads that are not decided yet."""
    able: list[tuple[Node, str]] | Refusal
    """The nodes that can hold it, each with the environment_id of the trial there, or why none can."""
    environments: dict[str, Fingerprint]
    """Its environments there, by environment_id."""
    cluster: Sequence[Node]
    done: Mapping[tuple[str, str], Outcome] = field(default_factory=dict)
    """The results in the store that count, by environment_id and measurement_id."""
    promises: Mapping[str, Sequence[Promise]] = field(default_factory=dict)
    """What earlier trials of the plan will measure, by measurement_id."""
    missing: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Optional modules that no node of an environment has."""
    why_too_large: Callable[[Trial, Fingerprint], str | None] = lambda trial, environment: None
    """Why the trial does not fit into an environment's memory; None if it may."""

    def measurement(self, workload: str) -> str:
        return measurement_id(self.trial.config, workload)

    def processes(self, environment: str, workload: str) -> int:
        """Return how many processes of a measurement in the store count."""
        outcome = self.done.get((environment, self.measurement(workload)))
        return outcome.processes if outcome else 0

    def has_enough(self, environment: str, workload: str) -> bool:
        """Return whether no further process needs to measure it there: enough did, or it cannot run."""
        outcome = self.done.get((environment, self.measurement(workload)))
        return outcome is not None and (outcome.status != Status.OK or outcome.processes >= self.trial.config.processes)

    @cached_property
    def obstacles(self) -> dict[str, str | None]:
        """Why the trial does not run, by environment."""
        # A workload that a rule excludes keeps out those that run with it. `unsupported` has decided for a single one.
        workloads = self.trial.workloads if len(self.environments) > 1 else ()
        found = {}
        for key, environment in self.environments.items():
            excluded = (self.excluded(name, key) for name in workloads)
            found[key] = self.why_too_large(self.trial, environment) or next(filter(None, excluded), None)
        return found

    def excluded(self, workload: str, environment: str) -> str | None:
        """Return why a rule excludes the workload in an environment; None if it may run there."""
        config, there = self.trial.config, self.environments[environment]
        datasheet = datasheet_of(there) if config.takes_gpus else None
        device = capabilities_of(datasheet) if datasheet else UNKNOWN
        device = device._replace(missing=self.missing.get(environment, frozenset()))
        return why_not(config, workload) or why_not_on(config, workload, device)

    def planned(
        self, action: Action, reason: str | None, environment: str | None = None, placement: Placement | None = None
    ) -> PlannedTrial:
        there = self.environments[environment] if environment else next(iter(self.environments.values()))
        return PlannedTrial(
            trial=self.trial,
            trial_id=trial_id(self.trial.config),
            action=action,
            reason=reason,
            environment=there,
            placement=placement,
        )


class Decision(NamedTuple):
    workloads: tuple[str, ...]
    planned: tuple[PlannedTrial, ...] = ()
    promise: Promise | None = None
    """What later trials can rely on, for these workloads."""


def shared(asked: Question) -> Decision | None:
    """Workloads that earlier trials measure, under another name of the same device."""
    promised = tuple(
        name
        for name in asked.trial.workloads
        if any(one.covers(asked.environments) for one in asked.promises.get(asked.measurement(name), ()))
    )
    return Decision(promised) if promised else None


def stored(asked: Question) -> Decision | None:
    """Workloads that enough processes have measured; they are shown if no others are left."""
    workloads, environments = asked.trial.workloads, asked.environments
    measured = tuple(name for name in workloads if any(asked.has_enough(key, name) for key in environments))
    if not measured:
        return None
    # In all environments, though one suffices: a trial that has only some of them is not covered, and looks itself.
    promise = Promise(may_be_in=frozenset(environments))
    if measured != workloads:
        return Decision(measured, promise=promise)
    there = [key for key in environments if asked.has_enough(key, measured[0])][-1]
    status = asked.done[there, asked.measurement(measured[0])].status
    outcome = "already measured" if status == Status.OK else status
    reason = f"{outcome} on {environments[there].device_name}"
    # Where no node can hold the trial now, say why; the stored reason may be older.
    planned = asked.planned("stored", asked.able.reason if isinstance(asked.able, Refusal) else reason, there)
    return Decision(measured, (planned,), promise)


def nowhere(asked: Question) -> Decision | None:
    """A trial that no node can hold."""
    if not isinstance(asked.able, Refusal):
        return None
    promise = Promise(may_be_in=frozenset(asked.environments))
    return Decision(asked.trial.workloads, (asked.planned("unsupported", asked.able.reason),), promise)


def unsupported(asked: Question) -> Decision | None:
    """The workloads that a rule excludes in every environment, those with one reason together."""
    reasons: dict[str, list[str]] = {}
    for name in asked.trial.workloads:
        found = [asked.excluded(name, key) for key in asked.environments]
        if found[0] and all(found):
            reasons.setdefault(found[0], []).append(name)
    if not reasons:
        return None
    planned = tuple(
        replace(asked.planned("unsupported", reason), trial=replace(asked.trial, workloads=tuple(names)))
        for reason, names in reasons.items()
    )
    decided = tuple(name for names in reasons.values() for name in names)
    return Decision(decided, planned, Promise.of_failure(asked.environments))


def too_large(asked: Question) -> Decision | None:
    """A trial that fits into the memory of no environment."""
    reasons = asked.obstacles
    if not all(reasons.values()):
        return None
    planned = asked.planned("predicted_oom", next(iter(reasons.values())))
    return Decision(asked.trial.workloads, (planned,), Promise.of_failure(asked.environments))


def run(asked: Question) -> Decision | None:
    """The trial once for each process that will measure it."""
    config, workloads = asked.trial.config, asked.trial.workloads
    assert not isinstance(asked.able, Refusal), "some node can hold it"
    fits = [(node, key) for node, key in asked.able if asked.obstacles[key] is None]
    if config.processes > 1:  # only processes in one environment are pooled: take the one in which most are stored
        chosen = max((key for _, key in fits), key=lambda key: sum(asked.processes(key, name) for name in workloads))
        fits = [(node, key) for node, key in fits if key == chosen]
    there = fits[0][1]
    once = asked.planned("run", None, there, place(config, [node for node, _ in fits], asked.cluster))
    stored_processes = {name: asked.processes(there, name) for name in workloads}
    promise = Promise(may_be_in=frozenset(key for _, key in fits))
    planned = []
    # Say of 3 processes `timing` has 2 stored, `memory` none: processes 1 and 2 measure `memory`, process 3 both.
    for process in range(min(stored_processes.values()) + 1, config.processes + 1):
        unmeasured = tuple(name for name in workloads if stored_processes[name] < process)
        planned.append(replace(once, trial=replace(asked.trial, workloads=unmeasured), process=process))
    return Decision(workloads, tuple(planned), promise)


DECIDERS: tuple[Callable[[Question], Decision | None], ...] = (shared, stored, nowhere, unsupported, too_large, run)
"""In this order, each decides about the workloads that those before it left open."""


def decide(asked: Question) -> list[Decision]:
    found = []
    for decider in DECIDERS:
        if decision := decider(asked):
            found.append(decision)
            left = tuple(name for name in asked.trial.workloads if name not in decision.workloads)
            if not left:
                break
            asked = replace(asked, trial=replace(asked.trial, workloads=left))
    return found


_Place = tuple[str, Fingerprint]
"""An environment on a node, after its environment_id."""


class _Decisions:
    def __init__(
        self, *, nodes: list[Node], done: dict[tuple[str, str], Outcome], predictions: Predictions | None
    ) -> None:
        self._nodes = nodes
        self._done = done
        self._predictions = predictions
        self._places: dict[tuple[str, int, int, str | None], tuple[list[Node] | Refusal, list[_Place]]] = {}
        """Device, world_size, nodes and software -> what `_where` returns."""
        self._digest = cache(code_digest)
        self._promises: dict[str, list[Promise]] = {}  # by measurement_id

    def settle(self, trials: Sequence[Trial]) -> None:
        if self._predictions:
            self._predictions.settle(
                (trial, environment) for trial in trials for environment in dict(self._where(trial.config)[1]).values()
            )  # each environment once

    def about(self, trial: Trial) -> list[PlannedTrial]:
        """Return the trial as it is planned: once for each process, or in parts, each with its own reason."""
        config = trial.config
        nodes, places = self._where(config)
        places = self._with_code(places, trial, trial.code) if trial.code else places
        keys = [key for key, _ in places]
        able = nodes if isinstance(nodes, Refusal) else list(zip(nodes, keys, strict=True))
        missing: dict[str, frozenset[str]] = {}
        if not (config.software or isinstance(able, Refusal)):  # `software` is another Python than the node's
            for node, key in able:
                missing[key] = missing.get(key, node.missing) & node.missing
        found = decide(
            Question(
                trial=trial, able=able, environments=dict(places), cluster=self._nodes,
                done=self._done, missing=missing, promises=self._promises,
                why_too_large=self._predictions.why_too_large if self._predictions else lambda trial, there: None,
            )
        )  # fmt: skip
        for decision in found:
            if decision.promise:
                for name in decision.workloads:
                    self._promises.setdefault(measurement_id(config, name), []).append(decision.promise)
        planned = [one for decision in found for one in decision.planned]
        return [self._with_flops(one) if one.action == "run" else one for one in planned]

    def _with_flops(self, planned: PlannedTrial) -> PlannedTrial:
        flops = self._predictions.flops(planned.trial) if self._predictions else None
        return replace(planned, trial=replace(planned.trial, flops=flops))

    def _with_code(self, places: list[_Place], trial: Trial, code: Code) -> list[_Place]:
        digest = self._digest(trial.references, code)
        with_code = partial(replace, code_digest=digest, code_revision=code.revision, code_dirty=code.dirty)
        there = [with_code(one) for _, one in places]
        return [(environment_id(one, trial.config.software), one) for one in there]

    def _where(self, config: TrialConfig) -> tuple[list[Node] | Refusal, list[_Place]]:
        """Return the nodes that can hold a trial, or why none can, and its environment on each."""
        key = (config.device, config.world_size, config.nodes, config.software)
        if key not in self._places:
            able = able_nodes(config, self._nodes)
            if isinstance(able, Refusal):
                there = [missing_environment(config, self._nodes)]
            else:
                there = [node.environments[config.device_type] for node in able]
            software = config.software
            places = [(environment_id(one, software), expected_with(one, software)) for one in there]
            self._places[key] = able, places
        return self._places[key]


def _on_every_accelerator(trial: Trial, nodes: list[Node]) -> list[Trial]:
    if trial.config.device != "cuda:*":
        return [trial]
    types = sorted({node.accelerator_type for node in nodes if node.accelerator_type})
    devices = [f"cuda:{name}" for name in types] or ["cuda"]
    return [replace(trial, config=replace(trial.config, device=device)) for device in devices]
