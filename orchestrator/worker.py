"""The worker: what an actor on a node does with a trial. It holds the device for the trial and never touches it."""

import os
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.plan import PlannedTrial
from trials.isolation import IsolatedRunner
from trials.record import Record, Row
from trials.spec import TrialConfig

LEAST_AHEAD = 4
"""Compiled trials that are compiled ahead together even where there are fewer cores."""


class Worker:
    """Runs trials of one plan, each in a process of its own, on this worker's cores."""

    def __init__(self, trials: Sequence[PlannedTrial]) -> None:
        self._trials = trials
        self._runner = IsolatedRunner()
        self._compiled: set[TrialConfig] = set()

    def run(self, index: int, gpu_ids: list[int], gpus_on_node: int) -> list[Row]:
        """The rows of the plan's trial of this index."""
        planned = self._trials[index]
        cores = cores_of(gpu_ids, gpus_on_node)
        seconds = self._compile_ahead(index, cores)
        rows = self._runner.run(planned.trial, fallback=planned.environment, cores=cores)
        last = rows[-1]
        if seconds and isinstance(last, Record) and last.phase == "trial":
            rows.append(replace(last, metric="precompile_time", samples=(seconds,)))
        return rows

    def close(self) -> None:
        self._runner.close()

    def _compile_ahead(self, index: int, cores: tuple[int, ...]) -> float:
        """Compiles this trial's graph and those of the next ones while nothing is measured; returns the seconds."""
        config = self._trials[index].trial.config
        if not config.compiles or config in self._compiled:
            return 0.0
        alike = [
            one.trial.config
            for one in self._trials[index:]
            if one.trial.config.compiles and one.trial.config.device_type == config.device_type
        ]
        ahead = alike[: max(LEAST_AHEAD, len(cores))]
        self._compiled.update(ahead)
        return self._runner.precompile(ahead, environment=self._trials[index].environment, cores=cores)


def cores_of(gpu_ids: list[int], gpus_on_node: int) -> tuple[int, ...]:
    """The cores that belong to these GPUs, so that trials side by side never share one; without GPUs, all cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = len(cores) // gpus_on_node if gpus_on_node else 0
    if not gpu_ids or share == 0:
        return tuple(cores)
    return tuple(core for gpu in gpu_ids for core in cores[gpu * share : (gpu + 1) * share])
