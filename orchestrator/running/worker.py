"""Runs a plan's trials on a node. The worker reserves a device for each trial and never uses it itself."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.trials.code.bundle import unpack
from lmsweep.trials.distributed.ranks import Part
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.machine.cpu_affinity import Gpu, cores_of, find_cores, find_gpus
from lmsweep.trials.machine.cuda_keepalive import ReadyCudaDriver
from lmsweep.trials.machine.scratch import scratch_folder
from lmsweep.trials.results.record import Record, Row

LEAST_AHEAD = 4
"""Graphs that are compiled ahead together, even on a machine with fewer cores."""
TRIALS_PER_GRAPH = 16
"""How many trials are looked through for each graph that may be compiled ahead: optimizers, for example, share one."""


class Worker:
    """Runs trials, each in a process of its own, on this worker's cores."""

    def __init__(
        self,
        trials: Sequence[PlannedTrial],
        *,
        gpu_ids: Sequence[str],
        gpus_on_node: int,
        code: bytes | None = None,
    ) -> None:
        """Start the trial server in the background, which takes seconds.

        `trials` are in the order of the run. `gpu_ids` names the GPUs of this worker as CUDA_VISIBLE_DEVICES does;
        `gpus_on_node` is the number of GPUs that Ray may assign on this node.
        `code` is the packed folder with the user's code, unpacked here; None if the trials' own paths lead to it.
        """
        self._trials = trials
        self._copy = ExitStack()
        self._code_folder: str | None = None
        if code is not None:
            folder = self._copy.enter_context(scratch_folder()) / "code"
            unpack(code, folder)
            self._code_folder = str(folder)
        self._workers = max(1, gpus_on_node // len(gpu_ids)) if gpu_ids else 1
        # Without NVIDIA's driver, GPUs are known by number only.
        gpus = find_gpus() or [Gpu(names=(str(i),), numa_node=None) for i in range(gpus_on_node)]
        self._cores = cores_of(gpu_ids, gpus, find_cores())
        self._cuda_driver = ReadyCudaDriver() if gpu_ids else None
        self._runner = IsolatedRunner(cores=self._cores)
        self._runner.start()

    def run(
        self,
        position: int,
        *,
        likely: Sequence[int] | None = None,
        part: Part | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[Row]:
        """Return the rows of the trial at this position. `part` and `is_cancelled` are passed to IsolatedRunner.

        likely: in a search, the positions that may follow it, whose graphs are compiled ahead; None: those after it.
        """
        planned = self._trials[position]
        seconds = self._compile_ahead(position, likely) if planned.trial.config.compiles else None
        trial = planned.trial
        if trial.code and self._code_folder:
            trial = replace(trial, code=replace(trial.code, folder=self._code_folder))
        rows = self._runner.run(trial, fallback=planned.environment, part=part, is_cancelled=is_cancelled)
        last = rows[-1] if rows else None
        if seconds is not None and isinstance(last, Record) and last.phase == "trial":
            rows.append(replace(last, metric="precompile_time", samples=(seconds,)))
        return rows

    def close(self) -> None:
        self._runner.close()
        if self._cuda_driver:
            self._cuda_driver.close()
        self._copy.close()

    def _compile_ahead(self, position: int, likely: Sequence[int] | None) -> float:
        """Compile this trial's graph while nothing is measured here, and return the seconds that took.

        If the graph is not cached yet, graphs of the next trials are compiled in parallel with it. Of a search, many
        of them will not run, so only half of the cores compile.
        """
        device = self._trials[position].trial.config.device_type
        alike = (
            self._trials[i].trial.config
            for i in (range(position, len(self._trials)) if likely is None else (position, *likely))
            if self._trials[i].trial.config.compiles and self._trials[i].trial.config.device_type == device
        )
        cores = len(self._cores)
        most = max(LEAST_AHEAD, cores) * self._workers if likely is None else max(1, cores // 2)
        ahead = tuple(islice(alike, most * TRIALS_PER_GRAPH))
        environment = self._trials[position].environment
        return self._runner.precompile(ahead, environment=environment, sharers=self._workers, most=most).seconds
