"""Runs a plan's trials on a node. The worker reserves a device for each trial and never uses it itself."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.trials.code.bundle import unpack
from lmsweep.trials.distributed.ranks.ranks import Part
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.isolation.server_process import ServerProcess
from lmsweep.trials.isolation.standby import slot_name
from lmsweep.trials.isolation.virtual_environment import SoftwareError, interpreter_with, is_made
from lmsweep.trials.machine.cpu_affinity import Gpu, cores_of, find_cores, find_gpus
from lmsweep.trials.machine.gpu.cuda_keepalive import ReadyCudaDriver
from lmsweep.trials.machine.scratch import scratch_folder
from lmsweep.trials.results.attempt import Attempt
from lmsweep.trials.results.record import Record, Row

LEAST_AHEAD = 4
"""Graphs that are compiled ahead together, even on a machine with fewer cores."""
TRIALS_PER_GRAPH = 16
"""How many trials are looked through for each graph that may be compiled ahead: optimizers, for example, share one."""

MOST_RUNNERS = 4
"""Trial servers that are kept, each with other software. An idle one holds the memory of an imported torch."""


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
        """Take the trial server that was started ahead, or start that of the first trial's software in the background.

        `trials` are in the order of the run. `gpu_ids` names the GPUs of this worker as CUDA_VISIBLE_DEVICES does;
        `gpus_on_node` is the number of GPUs that Ray may assign on this node.
        `code` is the packed folder with the user's code, unpacked here; None if the trials' own paths lead to it.
        `standby` is the folder of the servers that were started ahead for trials with the installed software; None if
        none were.
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
        self._slot = slot_name(gpu_ids)
        self._standby = standby
        self._cuda_driver = ReadyCudaDriver() if gpu_ids else None
        self._runners: dict[str | None, IsolatedRunner] = {}
        """Software -> the runner of its trials; None: what is installed. The one that was used last comes last."""
        self._unmade: dict[str, SoftwareError] = {}
        """Software whose environment cannot be made here, and why."""
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
        """Return the rows of the trial at this position. `part` and `is_cancelled` are passed to IsolatedRunner.

        likely: in a search, the positions that may follow it, whose graphs are compiled ahead; None: those after it.
        """
        planned = self._trials[position]
        trial = planned.trial
        try:
            runner = self._runner_with(trial.config.software)
        except SoftwareError as error:
            attempt = Attempt.begin(trial)
            return [attempt.failure(name, error.status, str(error), planned.environment) for name in trial.workloads]
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
        """Return the runner for trials with this software, after making its environment on this node if need be.

        Raises SoftwareError if that fails; it is tried once.
        """
        if software in self._unmade:
            raise self._unmade[software]
        runner = self._runners.pop(software, None)
        if runner is None:
            runner = self._runner_in(software) if software else self._runner_here()
            while len(self._runners) >= MOST_RUNNERS:
                self._runners.pop(next(iter(self._runners))).close()
        self._runners[software] = runner
        return runner

    def _runner_here(self) -> IsolatedRunner:
        """Return a runner for the installed software, with the server that was started ahead if there is one."""
        configs = [one.trial.config for one in self._trials if one.trial.config.software is None]
        server = ServerProcess.take(self._standby, self._slot) if self._standby else None
        return IsolatedRunner(cores=self._cores, server=server, compiles=any(config.compiles for config in configs))

    def _runner_in(self, software: str) -> IsolatedRunner:
        """Return a runner for this software. Its server imports no compiler ahead: while Inductor is imported, some
        releases look for a GPU, which their forks could then not use.
        """
        try:
            return IsolatedRunner(cores=self._cores, python=interpreter_with(software))
        except SoftwareError as error:
            self._unmade[software] = error
            raise

    def _compile_ahead(self, position: int, likely: Sequence[int] | None, runner: IsolatedRunner) -> float:
        """Compile this trial's graph while nothing is measured here, and return the seconds that took.

        If the graph is not cached yet, graphs of the next trials are compiled in parallel with it.
        """
        this = self._trials[position].trial.config
        coming = (
            self._trials[i].trial.config
            for i in (range(position, len(self._trials)) if likely is None else (position, *likely))
        )
        alike = (
            config
            for config in coming
            if config.compiles and (config.device_type, config.software) == (this.device_type, this.software)
        )
        cores = len(self._cores)
        most = max(LEAST_AHEAD, cores) * self._workers if likely is None else cores  # of a search, many will not run
        ahead = tuple(islice(alike, most * TRIALS_PER_GRAPH))
        environment = self._trials[position].environment
        return runner.precompile(ahead, environment=environment, sharers=self._workers, most=most).seconds
