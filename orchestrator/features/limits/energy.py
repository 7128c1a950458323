"""The workload `energy`: joules per training iteration, from the GPU board's energy counter."""

import time
from collections.abc import Iterator

import numpy as np

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.telemetry import Watch
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.timing.clock import clock_for, time_iteration

ENERGY_SECONDS = 2.0
"""Shortest time to measure energy over, as the driver updates its counter a few times a second."""

WARMUP_ITERATIONS = 3


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Yield the joules per iteration, averaged over ENERGY_SECONDS."""
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
        watch.wait()  # for the first reading; the others are read when the watch closes
        since, iterations = time.monotonic(), 0
        with bench.account("measured"):
            while counts_energy(watch) and time.monotonic() < since + ENERGY_SECONDS:
                run()
                iterations += 1
        until = time.monotonic()
    yield energy_row(watch, since=since, until=until, iterations=iterations)


def counts_energy(watch: Watch) -> bool:
    return bool(watch.readings) and watch.readings[0].energy is not None


def energy_row(watch: Watch, *, since: float, until: float, iterations: int) -> Measurement:
    """Return the energy per iteration, in J, that the board drew between `since` and `until` (time.monotonic())."""
    counter = [(reading.at, reading.energy) for reading in watch.readings if reading.energy is not None]
    samples, reason = None, None
    if not counter:
        reason = watch.reason or "this driver does not count energy"
    elif until - since < ENERGY_SECONDS or not counter[0][0] <= since < until <= counter[-1][0]:
        reason = f"the energy counter covered less than {ENERGY_SECONDS:g} s of iterations"
    else:
        times, joules = zip(*counter, strict=True)
        samples = (float(np.interp(until, times, joules) - np.interp(since, times, joules)) / iterations,)
    return Measurement(phase="step", metric="energy", unit="J", samples=samples, reason=reason)
