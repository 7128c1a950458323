"""The worker: what an actor on a node does with a trial. It holds the device for the trial and never touches it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.trials.distributed.ranks import Part
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.machine.cpu_affinity import Gpu, cores_of, find_cores, find_gpus
from lmsweep.trials.machine.cuda_keepalive import ReadyCudaDriver
from lmsweep.trials.results.record import Record, Row

LEAST_AHEAD = 4
"""Compiled trials that are compiled ahead together even where there are fewer cores."""


class Worker:
    """Runs trials of one plan, each in a process of its own, on this worker's cores."""

    def __init__(self, trials: Sequence[PlannedTrial], *, gpu_ids: Sequence[str], gpus_on_node: int) -> None:
        """`gpu_ids` are those that it holds, as CUDA_VISIBLE_DEVICES names them; the node has `gpus_on_node` to give.

        Begins to start the trial server, which takes seconds.
        """
        self._trials = trials
        self._workers = max(1, gpus_on_node // len(gpu_ids)) if gpu_ids else 1
        # Without NVIDIA's driver the GPUs are known by number only.
        gpus = find_gpus() or [Gpu(names=(str(i),), numa_node=None) for i in range(gpus_on_node)]
        self._cores = cores_of(gpu_ids, gpus, find_cores())
        self._cuda_driver = ReadyCudaDriver() if gpu_ids else None
        self._runner = IsolatedRunner(cores=self._cores)
        self._runner.start()

    def run(self, index: int, *, part: Part | None = None, in_vain: Callable[[], bool] | None = None) -> list[Row]:
        """The rows of the plan's trial of this index; `part` and `in_vain` are for IsolatedRunner."""
        planned = self._trials[index]
        seconds = self._compile_ahead(index) if planned.trial.config.compiles else None
        rows = self._runner.run(planned.trial, fallback=planned.environment, part=part, in_vain=in_vain)
        last = rows[-1] if rows else None
        if seconds is not None and isinstance(last, Record) and last.phase == "trial":
            rows.append(replace(last, metric="precompile_time", samples=(seconds,)))
        return rows

    def close(self) -> None:
        self._runner.close()
        if self._cuda_driver:
            self._cuda_driver.close()

    def _compile_ahead(self, index: int) -> float:
        """Has this trial's graph compiled and, if it was not, some of those of the next ones too, while nothing is
        measured here; returns the seconds.
        """
        device = self._trials[index].trial.config.device_type
        alike = (
            self._trials[i].trial.config
            for i in range(index, len(self._trials))
            if self._trials[i].trial.config.compiles and self._trials[i].trial.config.device_type == device
        )
        ahead = tuple(islice(alike, max(LEAST_AHEAD, len(self._cores)) * self._workers))
        environment = self._trials[index].environment
        return self._runner.precompile(ahead, environment=environment, sharers=self._workers).seconds
