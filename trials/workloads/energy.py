"""The workload `energy`: joules per training iteration, from the GPU board's energy counter."""

import time
from collections.abc import Iterator

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.telemetry import ENERGY_SECONDS, Watch, energy_row
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.timing.clock import clock_for, time_iteration

WARMUP_ITERATIONS = 3


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Yield the joules per iteration, averaged over ENERGY_SECONDS, as the driver updates its counter slowly."""
    phases = bench.iteration.phases()
    clock = clock_for(bench.config.device_type)

    def run() -> None:
        time_iteration(phases, clock)
        bench.iteration.drop()

    with Watch(bench.config.device_type) as watch, bench.quiet():
        with bench.account("compile" if bench.config.compiles else "warmup"):
            run()
        with bench.account("warmup"):
            for _ in range(WARMUP_ITERATIONS):
                run()
        watch.wait()
        since, iterations = time.monotonic(), 0
        with bench.account("measured"):
            while watch.counts_energy and time.monotonic() < since + ENERGY_SECONDS:
                run()
                iterations += 1
        until = time.monotonic()
    yield energy_row(watch, since=since, until=until, iterations=iterations)
