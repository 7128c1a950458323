"""Crew: the workers of a trial's nodes. The one that Tune placed leads, and has an actor on each of the other nodes.

The nodes share nothing but the network: their ranks meet at an address of the leader's.
"""

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.worker import Worker
from lmsweep.trials.distributed.ranks import FAREWELL_SECONDS, Part, parts_of
from lmsweep.trials.results.attempt import Attempt
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record, Row
from lmsweep.trials.spec.workloads import workloads

START_SECONDS = 60.0
"""How long an actor may take to start: where its node has gone it never will."""
BLAME_SECONDS = 5.0
"""How long the other nodes have, when ranks have failed on one, to say what they know of it."""


class Crew:
    """Belongs to one placement group, for as long as trials that ask for the same follow one another there."""

    def __init__(self, trials: Sequence[PlannedTrial]) -> None:
        self._trials = trials
        self._leader = worker_here(trials)
        self._members: dict[int, Any] = {}
        """The other actors by the index of their bundle."""

    def run(self, index: int) -> list[Row]:
        """The rows of the plan's trial of this index."""
        config = self._trials[index].trial.config
        return self._run_together(index) if config.nodes > 1 else self._leader.run(index)

    def close(self) -> None:
        """Ends all workers."""
        for node in list(self._members):
            self._dismiss(node)
        self._leader.close()

    def _run_together(self, index: int) -> list[Row]:
        import ray

        planned = self._trials[index]
        attempt = Attempt.begin(planned.trial)
        host = ray.util.get_node_ip_address()
        mine, *others = parts_of(planned.trial.config, host, free_port(host))
        answers: dict[int, list[Row]] = {}
        running: dict[Any, int] = {}
        failed_at: float | None = None

        def collect(seconds: float) -> None:
            """Takes the answers that come within this time."""
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

        def in_vain() -> bool:
            collect(0.0)
            return failed_at is not None and time.monotonic() - failed_at > BLAME_SECONDS

        (ranked,) = (name for name in planned.trial.workloads if workloads()[name].has_ranks)

        def lost(node: int, error: Exception) -> Row:
            self._dismiss(node)
            first_line = str(error).strip().partition("\n")[0]
            words = f"the worker or its node died: {first_line}"
            return attempt.failure(ranked, Status.LOST, words, planned.environment)

        for node, part in enumerate(others, start=1):
            try:
                running[self._member(node).run.remote(index, part)] = node
            except ray.exceptions.RayError as error:
                answers[node] = [lost(node, error)]
                break
        else:
            answers[0] = self._leader.run(index, part=mine, in_vain=in_vain)
        all_well = not any(map(failure_of, answers.values()))
        collect(FAREWELL_SECONDS if all_well else BLAME_SECONDS)
        for node in running.values():
            self._dismiss(node)
        return _as_one(planned, attempt, answers)

    def _member(self, node: int) -> Any:
        """The actor in this bundle, started where there is none. Raises RayError where that is not possible."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if node not in self._members:
            group = ray.util.get_current_placement_group()
            assert group, "Tune placed this actor in one"
            bundle = group.bundle_specs[node]
            member: Any = ray.remote(_Member).options(
                num_cpus=bundle["CPU"],
                num_gpus=bundle.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node),
            )
            self._members[node] = member.remote(self._trials)
            ray.get(self._members[node].has_started.remote(), timeout=START_SECONDS)
        return self._members[node]

    def _dismiss(self, node: int) -> None:
        """Kills the actor, and with it all that it started."""
        import ray

        if member := self._members.pop(node, None):
            with suppress(ray.exceptions.RayError):
                ray.kill(member)


class _Member:
    """The actor on a node that does not lead."""

    def __init__(self, trials: Sequence[PlannedTrial]) -> None:
        self._worker = worker_here(trials)

    def has_started(self) -> None:
        """Answers once it has."""

    def run(self, index: int, part: Part) -> list[Row]:
        return self._worker.run(index, part=part)


def worker_here(trials: Sequence[PlannedTrial]) -> Worker:
    """A worker with the GPUs that Ray has given to this actor."""
    import ray

    context = ray.get_runtime_context()
    here = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    return Worker(
        trials,
        gpu_ids=context.get_accelerator_ids().get("GPU", []),
        gpus_on_node=int(here["Resources"].get("GPU", 0)),
    )


def free_port(host: str) -> int:
    """A TCP port at this address of ours that nobody listens on; rank 0 takes it a moment later."""
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def failure_of(rows: list[Row]) -> Record | None:
    """What became of a node's ranks, if not all is well; workloads of one process are none of their business."""
    records = [row for row in rows if isinstance(row, Record) and workloads()[row.workload].has_ranks]
    return next((row for row in records if row.status != Status.OK), None)


def _as_one(planned: PlannedTrial, attempt: Attempt, answers: dict[int, list[Row]]) -> list[Row]:
    """The leader's rows; where ranks have failed, what each node says of it, the cause last: a rank that loses another
    finds an error, so any other status is the cause.
    """
    failed = [(node, row) for node, rows in answers.items() if (row := failure_of(rows))]
    if not failed:
        return answers[0]
    failed.sort(key=lambda one: (one[1].status != Status.ERROR, one[0]))
    cause = failed[-1][1]
    of_all = len({row.error for _, row in failed}) == 1 and len(failed) == planned.trial.config.nodes
    words = cause.error or "" if of_all else "\n".join(f"node {node}: {row.error}" for node, row in failed)
    kept = [row for row in answers.get(0, []) if isinstance(row, Record) and not workloads()[row.workload].has_ranks]
    left = [name for name in planned.trial.workloads if name not in {row.workload for row in kept}]
    return [*kept, *(attempt.failure(name, Status(cause.status), words, cause.fingerprint) for name in left)]
