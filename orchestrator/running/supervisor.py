"""The actor in which Tune runs trials. For a trial on several nodes it starts one more actor on each other node.

The nodes share nothing but the network. Their ranks rendezvous at an address of the first node.
"""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lmsweep.orchestrator.cluster.placement import live_nodes
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.worker import Worker
from lmsweep.trials.distributed.ranks.ranks import FAREWELL_SECONDS, Part, parts_of
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Attempt, Record, Row
from lmsweep.trials.spec.workloads import workload_named

NODE_ID = "ray.io/node-id"
"""The label that Ray gives every node."""
START_SECONDS = 60.0
"""How long an actor may take to start. If its node is gone, it never starts."""
BLAME_SECONDS = 5.0
"""How long the other nodes may take to report after ranks failed on one."""


def resources(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    """Return a trial's placement group. Tune unpickles this function with every trial: it must not hold the plan."""
    bundles = config["bundles"]
    strategy = "STRICT_SPREAD" if len(bundles) > 1 else "PACK"
    if not config["node_ids"]:
        return tune.PlacementGroupFactory(bundles, strategy)
    any_of_them = {NODE_ID: f"in({','.join(config['node_ids'])})"}
    return tune.PlacementGroupFactory(bundles, strategy, bundle_label_selector=[any_of_them for _ in bundles])


class Supervisor(tune.Trainable):
    """Runs trials one after another; there is one per slot, which Tune keeps while trials need the same resources."""

    def setup(
        self,
        config: dict[str, Any],
        trials: Sequence[PlannedTrial] = (),
        code: bytes | None = None,
        standby: Path | None = None,
    ) -> None:
        self._trials = trials
        self._code = code
        self._worker = worker_here(trials, code, standby)
        self._actors: dict[int, Any] = {}
        """Index of another node's bundle -> its actor. Ray's actor handles are untyped."""

    def step(self) -> dict[str, Any]:
        position = self.config["position"]
        if self._trials[position].trial.config.nodes > 1:
            rows = self._run_on_nodes(position)
        else:
            rows = self._worker.run(position, likely=self.config.get("likely"))
        return {"done": True, "rows": rows}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True

    def cleanup(self) -> None:
        for node in list(self._actors):
            self._kill_actor(node)
        self._worker.close()

    def _run_on_nodes(self, position: int) -> list[Row]:
        """Run the trial's first part here, and each other part on a node of its own."""
        planned = self._trials[position]
        attempt = Attempt.begin(planned.trial)
        host = ray.util.get_node_ip_address()
        first, *others = parts_of(planned.trial.config, host, free_port(host))
        (ranked,) = (name for name in planned.trial.workloads if workload_named(name).has_ranks)  # one

        def row_of_lost(node: int, error: Exception) -> Row:
            self._kill_actor(node)
            first_line = str(error).strip().partition("\n")[0]
            words = f"the worker or its node died: {first_line}"
            return attempt.failure(ranked, Status.LOST, words, planned.environment)

        answers = _Answers(row_of_lost)
        if self._begin_on_others(position, others, answers):
            answers.keep(0, self._worker.run(position, part=first, is_cancelled=answers.is_cancelled))
        succeeded = not any(map(failure_of, answers.rows.values()))
        answers.collect(FAREWELL_SECONDS if succeeded else BLAME_SECONDS)
        for node in answers.running.values():  # those that have not answered
            self._kill_actor(node)
        return _merged(planned, attempt, answers.rows)

    def _begin_on_others(self, position: int, parts: Sequence[Part], answers: "_Answers") -> bool:
        """Begin each part on its node. Return whether all have begun: if one is lost, the trial does not begin here."""
        for node, part in enumerate(parts, start=1):
            try:
                answers.running[self._actor(node).run.remote(position, part)] = node
            except ray.exceptions.RayError as error:
                answers.keep(node, [answers.row_of_lost(node, error)])
                return False
        return True

    def _actor(self, node: int) -> Any:
        """Return the actor of this bundle, started if need be. Raises RayError."""
        if node not in self._actors:
            group = ray.util.get_current_placement_group()
            assert group, "Tune starts every actor in a placement group"
            bundle = group.bundle_specs[node]
            actor: Any = ray.remote(_OtherNode).options(
                num_cpus=bundle["CPU"],
                num_gpus=bundle.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node),
            )
            self._actors[node] = actor.remote(self._trials, self._code)
            ray.get(self._actors[node].has_started.remote(), timeout=START_SECONDS)
        return self._actors[node]

    def _kill_actor(self, node: int) -> None:
        if actor := self._actors.pop(node, None):
            with suppress(ray.exceptions.RayError):
                ray.kill(actor)


class _Answers:
    """The rows of a trial's nodes, as far as they have answered. row_of_lost: that of a node whose actor died."""

    def __init__(self, row_of_lost: Callable[[int, Exception], Row]) -> None:
        self.rows: dict[int, list[Row]] = {}
        self.running: dict[Any, int] = {}
        """Ray's reference to an answer that has not come -> the node."""
        self.row_of_lost = row_of_lost
        self._failed_at: float | None = None

    def keep(self, node: int, rows: list[Row]) -> None:
        self.rows[node] = rows
        if self._failed_at is None and failure_of(rows):
            self._failed_at = time.monotonic()

    def collect(self, seconds: float) -> None:
        """Keep what arrives within this time."""
        running = list(self.running)
        ready, _ = ray.wait(running, num_returns=len(running), timeout=seconds) if running else ([], [])
        for reference in ready:
            node = self.running.pop(reference)
            try:
                self.keep(node, ray.get(reference))
            except ray.exceptions.RayError as error:
                self.keep(node, [self.row_of_lost(node, error)])

    def is_cancelled(self) -> bool:
        """Whether ranks failed so long ago that the node with the cause has reported it: others wait in vain."""
        self.collect(0.0)
        return self._failed_at is not None and time.monotonic() - self._failed_at > BLAME_SECONDS


class _OtherNode:
    """The actor on each node but the first."""

    def __init__(self, trials: Sequence[PlannedTrial], code: bytes | None) -> None:
        self._worker = worker_here(trials, code)

    def has_started(self) -> None:
        """Return once the actor has started."""

    def run(self, position: int, part: Part) -> list[Row]:
        return self._worker.run(position, part=part)


def worker_here(trials: Sequence[PlannedTrial], code: bytes | None, standby: Path | None = None) -> Worker:
    context = ray.get_runtime_context()
    here = next(node for node in live_nodes() if node.node_id == context.get_node_id())
    return Worker(
        trials,
        gpu_ids=context.get_accelerator_ids().get("GPU", []),
        gpus_on_node=int(here.resources.get("GPU", 0)),
        code=code,
        standby=standby,
    )


def free_port(host: str) -> int:
    """Return a free TCP port at this address of our own; rank 0 binds it a moment later."""
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def _merged(planned: PlannedTrial, attempt: Attempt, answers: dict[int, list[Row]]) -> list[Row]:
    """Return the first node's rows; if ranks failed, in place of theirs the errors of all nodes, the cause last."""
    failed = [(node, row) for node, rows in answers.items() if (row := failure_of(rows))]
    if not failed:
        return answers[0]
    # A rank that loses its peer reports an error, so any other status is the cause.
    failed.sort(key=lambda one: (one[1].status != Status.ERROR, one[0]))  # errors come first
    _, cause = failed[-1]
    all_agree = len({row.error for _, row in failed}) == 1 and len(failed) == planned.trial.config.nodes
    words = (cause.error or "") if all_agree else "\n".join(f"node {node}: {row.error}" for node, row in failed)
    kept = [row for row in answers.get(0, []) if isinstance(row, Record) and not workload_named(row.workload).has_ranks]
    unfinished = [name for name in planned.trial.workloads if name not in {row.workload for row in kept}]
    return [*kept, *(attempt.failure(name, Status(cause.status), words, cause.fingerprint) for name in unfinished)]


def failure_of(rows: list[Row]) -> Record | None:
    records = [row for row in rows if isinstance(row, Record) and workload_named(row.workload).has_ranks]
    return next((row for row in records if row.status != Status.OK), None)
