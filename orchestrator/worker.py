"""The worker: what an actor on a node does with a trial. It holds the device for the trial and never touches it."""

import os

from orchestrator.plan import PlannedTrial
from trials.isolation import IsolatedRunner
from trials.record import Record


class Worker:
    def __init__(self) -> None:
        self._runner = IsolatedRunner()

    def run(self, planned: PlannedTrial, gpu_ids: list[int], gpus_on_node: int) -> list[Record]:
        """The rows of the trial, run in a process of its own on this worker's cores."""
        cores = cores_of(gpu_ids, gpus_on_node)
        return self._runner.run(planned.trial, fallback=planned.environment, cores=cores)

    def close(self) -> None:
        self._runner.close()


def cores_of(gpu_ids: list[int], gpus_on_node: int) -> tuple[int, ...]:
    """The cores that belong to these GPUs, so that trials side by side never share one; without GPUs, all cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = len(cores) // gpus_on_node if gpus_on_node else 0
    if not gpu_ids or share == 0:
        return tuple(cores)
    return tuple(core for gpu in gpu_ids for core in cores[gpu * share : (gpu + 1) * share])
