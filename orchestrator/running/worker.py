"""Runs a plan's trials on a node. The worker reserves a device for each trial and never uses it itself."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.software import SoftwareError, interpreter_with, is_made
from lmsweep.trials.code.digest import unpack
from lmsweep.trials.distributed.ranks.ranks import Part
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.isolation.server_process import ServerProcess
from lmsweep.trials.isolation.standby import slot_name
from lmsweep.trials.machine.cpu_affinity import Gpu, cores_of, find_cores, find_gpus
from lmsweep.trials.machine.gpu.cuda_keepalive import ReadyCudaDriver
from lmsweep.trials.machine.scratch import scratch_folder
from lmsweep.trials.results.record import Record, Row

LEAST_AHEAD = 4
"""Graphs that are compiled ahead together, even on a machine with fewer cores."""
TRIALS_PER_GRAPH = 16
"""How many trials are looked through for each graph that may be compiled ahead: optimizers, for example, share one."""

MOST_RUNNERS = 4
"""Trial servers with different software that are kept. An idle one holds the memory of an imported torch."""


class Worker:
    """Runs trials, each in a process of its own, on this worker's cores."""

    def __init__(
        self,
        trials: Sequence[PlannedTrial],
        *,
        gpu_ids: Sequence[str],
        gpus_on_node: int,
        code: bytes | None = None,
        standby: Path | None = None,
    ) -> None:
        """gpu_ids: this worker's GPUs as CUDA_VISIBLE_DEVICES names them. gpus_on_node: those that Ray may assign here.

        code: the packed folder with the user's code; None if the trials' own paths lead to it. standby: the folder of
        the trial servers that were started ahead for the installed software.
        """
        self._trials = trials
        self._copy = ExitStack()  # removes the copy of the user's code
        self._code_folder: str | None = None
        if code is not None:
            folder = self._copy.enter_context(scratch_folder()) / "code"
            unpack(code, folder)
            self._code_folder = str(folder)
        self._workers_on_node = max(1, gpus_on_node // len(gpu_ids)) if gpu_ids else 1
        # Without NVIDIA's driver, GPUs are known by number only.
        gpus = find_gpus() or [Gpu(names=(str(i),), numa_node=None) for i in range(gpus_on_node)]
        self._cores = cores_of(gpu_ids, gpus, find_cores())
        self._slot = slot_name(gpu_ids)
        self._standby = standby
        self._cuda_driver = ReadyCudaDriver() if gpu_ids else None
        self._runners: dict[str | None, IsolatedRunner] = {}
        """Software -> its trial server, the most recently used last; None: the installed software."""
        self._unmade: dict[str, SoftwareError] = {}
        first = trials[0].trial.config.software
        if first is None or is_made(first):
            self._runner_with(first).start()

    def run(
        self,
        position: int,
        *,
        likely: Sequence[int] | None = None,
        part: Part | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[Row]:
        """Return the rows of the trial at this position of the run. part, is_cancelled: as for `IsolatedRunner.run`.
        likely: positions that a search may choose next, whose graphs are compiled ahead; None: those after this one."""
        planned = self._trials[position]
        trial = planned.trial
        try:
            runner = self._runner_with(trial.config.software)
        except SoftwareError as error:
            return planned.failures(error.status, str(error))
        seconds = self._compile_ahead(position, likely, runner) if trial.config.compiles else None
        if trial.code and self._code_folder:
            trial = replace(trial, code=replace(trial.code, folder=self._code_folder))
        rows = runner.run(trial, fallback=planned.environment, part=part, is_cancelled=is_cancelled)
        last = rows[-1] if rows else None
        if seconds is not None and isinstance(last, Record) and last.phase == "trial":
            rows.append(replace(last, metric="precompile_time", samples=(seconds,)))
        return rows

    def close(self) -> None:
        for runner in self._runners.values():
            runner.close()
        if self._cuda_driver:
            self._cuda_driver.close()
        self._copy.close()

    def _runner_with(self, software: str | None) -> IsolatedRunner:
        """Return the runner of this software, whose environment is made here if need be. Raises SoftwareError."""
        if software in self._unmade:
            raise self._unmade[software]
        runner = self._runners.pop(software, None)
        if runner is None:
            runner = self._new_runner(software)
            while len(self._runners) >= MOST_RUNNERS:
                self._runners.pop(next(iter(self._runners))).close()
        self._runners[software] = runner
        return runner

    def _new_runner(self, software: str | None) -> IsolatedRunner:
        if software is None:
            compiles = any(one.trial.config.compiles and one.trial.config.software is None for one in self._trials)
            server = ServerProcess.take(self._standby, self._slot) if self._standby else None
            return IsolatedRunner(cores=self._cores, server=server, compiles=compiles)
        try:
            # It imports no compiler ahead: Inductor of some releases looks for a GPU, which forks could then not use.
            return IsolatedRunner(cores=self._cores, python=interpreter_with(software))
        except SoftwareError as error:
            self._unmade[software] = error
            raise

    def _compile_ahead(self, position: int, likely: Sequence[int] | None, runner: IsolatedRunner) -> float:
        """Compile this trial's graph, in parallel with those of the next trials. Return the seconds that took."""
        this = self._trials[position].trial.config
        coming = range(position, len(self._trials)) if likely is None else (position, *likely)
        configs = (self._trials[i].trial.config for i in coming)
        kind = this.device_type, this.software
        alike = (one for one in configs if one.compiles and (one.device_type, one.software) == kind)
        cores = len(self._cores)
        # A search may never run many of these, so for it no more are compiled than there are cores.
        most = max(LEAST_AHEAD, cores) * self._workers_on_node if likely is None else cores
        ahead = tuple(islice(alike, most * TRIALS_PER_GRAPH))  # of these, `most` different graphs
        environment = self._trials[position].environment
        return runner.precompile(ahead, environment=environment, sharers=self._workers_on_node, most=most).seconds
