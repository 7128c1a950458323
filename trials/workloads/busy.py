"""Busy: how long the GPU works in one training iteration, whatever it waits for in between."""

from collections.abc import Iterator

from trials.busy import busy_row
from trials.clock import clock_for, time_iteration
from trials.measurement import Measurement
from trials.workbench import Workbench

WARMUP_ITERATIONS = 3


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Yields the seconds of one traced iteration in which at least one kernel or copy ran.

    It is a workload of its own because the profiler, once it has run, makes every launch of its process slower: it
    comes after timing, and no other trial follows in that process.
    """
    phases = bench.step.phases()
    clock = clock_for(bench.config.device_type)

    def run() -> None:
        time_iteration(phases, clock)
        bench.step.drop()

    with bench.quiet():
        with bench.account("compile" if bench.config.compiles else "warmup"):
            run()
        with bench.account("warmup"):
            for _ in range(WARMUP_ITERATIONS):
                run()
        with bench.account("measured"):
            yield from busy_row(bench.config.device_type, run)
