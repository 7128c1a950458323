"""The workload `busy`: how long the GPU is busy in one training iteration, without timing it (`timing` does both)."""

from collections.abc import Iterator

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.profiling.device_time import device_row, trace_device
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.timing.clock import Clock, clock_for, time_iteration

WARMUP_ITERATIONS = 3


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Yield the seconds of traced iterations with at least one kernel or copy running; nothing on a CPU.

    On a CPU, host and device are the same.
    """
    phases = bench.step.phases()
    device_type = bench.config.device_type

    def run(clock: Clock) -> None:
        time_iteration(phases, clock)
        bench.step.drop()

    with bench.quiet():
        with bench.account("compile" if bench.config.compiles else "warmup"):
            run(clock_for(device_type))
        with bench.account("warmup"):
            for _ in range(WARMUP_ITERATIONS):
                run(clock_for(device_type))
        if device_type == "cuda":
            with bench.account("profiled"):
                times = trace_device(run, trial_seconds=bench.seconds_so_far)
            yield device_row("step", "busy_time", [one.step for one in times])
        elif device_type != "cpu":
            unknown = f"PyTorch cannot trace what runs on device {device_type}"
            yield Measurement(phase="step", metric="busy_time", unit="s", samples=None, reason=unknown)
