"""The plan: which trials of a sweep will run, and why the others will not."""

from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.fit import budget, why_not
from orchestrator.predictions import Predictions
from orchestrator.resources import Node, bundle, find_node, missing_environment
from orchestrator.sweep import Sweep
from trials.prediction import Prediction
from trials.record import Fingerprint, environment_id
from trials.spec import Status, Trial, measurement_id, trial_id
from trials.store import Store

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
    """Where it would run."""
    resources: dict[str, float]
    """What it asks Ray for; empty where it does not run."""


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
    known = {} if fresh else store.statuses()
    again = retry | {Status.PREDICTED_OOM} if predictions is None else retry
    done = {key for key, status in known.items() if Status(status).is_final and status not in again}
    placed = [trial for asked in sweep.trials for trial in _on_every_accelerator(asked, nodes)]
    planned = [_decide(trial, nodes, done, predictions) for trial in placed]
    # Compiled trials share a process as long as they follow one another.
    planned.sort(key=lambda one: one.trial.config.compiles)
    return Plan(sweep=sweep.name, trials=tuple(planned))


def _decide(
    trial: Trial, nodes: list[Node], done: set[tuple[str, str]], predictions: Predictions | None
) -> PlannedTrial:
    config = trial.config
    node = find_node(config, nodes)
    environment = missing_environment(config, nodes) if isinstance(node, str) else node.environments[config.device_type]
    key = environment_id(environment)
    left = tuple(name for name in trial.workloads if (key, measurement_id(config, name)) not in done)

    def planned(action: Action, reason: str | None, trial: Trial, resources: dict[str, float]) -> PlannedTrial:
        return PlannedTrial(
            trial=trial,
            trial_id=trial_id(config),
            action=action,
            reason=reason,
            environment=environment,
            resources=resources,
        )

    if not left:
        return planned("stored", f"already measured on {environment.device_name}", trial, {})
    if isinstance(node, str):
        return planned("unsupported", node, trial, {})
    rest = replace(trial, workloads=left)
    prediction = predictions.of(rest, environment.device_name) if predictions else None
    room = budget(config, environment)
    if isinstance(prediction, Prediction) and room and (reason := why_not(prediction, room)):
        return planned("predicted_oom", reason, rest, {})
    return planned("run", None, rest, bundle(config, node))


def _on_every_accelerator(trial: Trial, nodes: list[Node]) -> list[Trial]:
    """One trial per accelerator type for ``cuda:*``, else the trial itself."""
    if trial.config.device != "cuda:*":
        return [trial]
    types = sorted({node.accelerator_type for node in nodes if node.accelerator_type})
    places = [f"cuda:{name}" for name in types] or ["cuda"]
    return [replace(trial, config=replace(trial.config, device=place)) for place in places]
