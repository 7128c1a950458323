"""Runs a trial on several nodes: the actor that Tune placed leads, and starts one actor on each of the other nodes.

The nodes share nothing but the network. Their ranks rendezvous at an address of the leader.
"""

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lmsweep.orchestrator.cluster.live_nodes import live_nodes
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.worker import Worker
from lmsweep.trials.distributed.ranks.ranks import FAREWELL_SECONDS, Part, parts_of
from lmsweep.trials.results.attempt import Attempt
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, Row
from lmsweep.trials.spec.workloads import workload_named

START_SECONDS = 60.0
"""How long an actor may take to start. If its node is gone, it never starts."""
BLAME_SECONDS = 5.0
"""When ranks fail on one node, how long the other nodes have to report what they saw."""


class Crew:
    """The workers of one placement group, reused while successive trials need the same resources."""

    def __init__(self, trials: Sequence[PlannedTrial], code: bytes | None, standby: Path | None = None) -> None:
        """`code` is the packed folder with the user's code; None if the trials' own paths lead to it.

        `standby` is the folder of the trial servers that were started ahead; None if none were.
        """
        self._trials = trials
        self._code = code
        self._leader = worker_here(trials, code, standby)
        self._members: dict[int, Any] = {}
        """The actor of each other node, by the index of its bundle. Ray's actor handles are untyped."""

    def run(self, position: int, *, likely: Sequence[int] | None = None) -> list[Row]:
        """Return the rows of the trial at this position in the order of the run. likely: as for `Worker.run`."""
        config = self._trials[position].trial.config
        return self._run_together(position) if config.nodes > 1 else self._leader.run(position, likely=likely)

    def close(self) -> None:
        """End all workers."""
        for node in list(self._members):
            self._dismiss(node)
        self._leader.close()

    def _run_together(self, position: int) -> list[Row]:
        import ray

        planned = self._trials[position]
        attempt = Attempt.begin(planned.trial)
        host = ray.util.get_node_ip_address()
        mine, *others = parts_of(planned.trial.config, host, free_port(host))
        answers: dict[int, list[Row]] = {}
        running: dict[Any, int] = {}
        failed_at: float | None = None

        def collect(seconds: float) -> None:
            """Take the answers that arrive within this time."""
            nonlocal failed_at
            ready, _ = ray.wait(list(running), num_returns=len(running), timeout=seconds) if running else ([], [])
            for reference in ready:
                node = running.pop(reference)
                try:
                    answers[node] = ray.get(reference)
                except ray.exceptions.RayError as error:
                    answers[node] = [lost(node, error)]
                if failed_at is None and failure_of(answers[node]):
                    failed_at = time.monotonic()

        def is_cancelled() -> bool:
            collect(0.0)
            return failed_at is not None and time.monotonic() - failed_at > BLAME_SECONDS

        (ranked,) = (name for name in planned.trial.workloads if workload_named(name).has_ranks)

        def lost(node: int, error: Exception) -> Row:
            self._dismiss(node)
            first_line = str(error).strip().partition("\n")[0]
            words = f"the worker or its node died: {first_line}"
            return attempt.failure(ranked, Status.LOST, words, planned.environment)

        for node, part in enumerate(others, start=1):
            try:
                running[self._member(node).run.remote(position, part)] = node
            except ray.exceptions.RayError as error:
                answers[node] = [lost(node, error)]
                break
        else:
            answers[0] = self._leader.run(position, part=mine, is_cancelled=is_cancelled)
        succeeded = not any(map(failure_of, answers.values()))
        collect(FAREWELL_SECONDS if succeeded else BLAME_SECONDS)
        for node in running.values():
            self._dismiss(node)
        return _as_one(planned, attempt, answers)

    def _member(self, node: int) -> Any:
        """Return the actor of this bundle, and start it if there is none. Raises RayError if it cannot start."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if node not in self._members:
            group = ray.util.get_current_placement_group()
            assert group, "Tune starts every actor in a placement group"
            bundle = group.bundle_specs[node]
            member: Any = ray.remote(_Member).options(
                num_cpus=bundle["CPU"],
                num_gpus=bundle.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node),
            )
            self._members[node] = member.remote(self._trials, self._code)
            ray.get(self._members[node].has_started.remote(), timeout=START_SECONDS)
        return self._members[node]

    def _dismiss(self, node: int) -> None:
        """Kill the actor and every process that it started."""
        import ray

        if member := self._members.pop(node, None):
            with suppress(ray.exceptions.RayError):
                ray.kill(member)


class _Member:
    """The actor on a node other than the leader's."""

    def __init__(self, trials: Sequence[PlannedTrial], code: bytes | None) -> None:
        self._worker = worker_here(trials, code)

    def has_started(self) -> None:
        """Return once the actor has started."""

    def run(self, position: int, part: Part) -> list[Row]:
        return self._worker.run(position, part=part)


def worker_here(trials: Sequence[PlannedTrial], code: bytes | None, standby: Path | None = None) -> Worker:
    """Return a worker with the GPUs that Ray assigned to this actor."""
    import ray

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


def failure_of(rows: list[Row]) -> Record | None:
    """Return the first row of a node's ranks that failed, if any. Workloads without ranks do not count."""
    records = [row for row in rows if isinstance(row, Record) and workload_named(row.workload).has_ranks]
    return next((row for row in records if row.status != Status.OK), None)


class _Failed(NamedTuple):
    node: int
    row: Record


def _as_one(planned: PlannedTrial, attempt: Attempt, answers: dict[int, list[Row]]) -> list[Row]:
    """Return the leader's rows. If ranks failed, return what each node reports, with the cause last.

    A rank that loses its peer reports an error, so any other status is the cause.
    """
    failed = [_Failed(node, row) for node, rows in answers.items() if (row := failure_of(rows))]
    if not failed:
        return answers[0]
    failed.sort(key=lambda one: (one.row.status != Status.ERROR, one.node))
    cause = failed[-1].row
    of_all = len({row.error for _, row in failed}) == 1 and len(failed) == planned.trial.config.nodes
    words = cause.error or "" if of_all else "\n".join(f"node {node}: {row.error}" for node, row in failed)
    kept = [row for row in answers.get(0, []) if isinstance(row, Record) and not workload_named(row.workload).has_ranks]
    left = [name for name in planned.trial.workloads if name not in {row.workload for row in kept}]
    return [*kept, *(attempt.failure(name, Status(cause.status), words, cause.fingerprint) for name in left)]
