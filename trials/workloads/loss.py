"""The workload `loss`: time and memory of the output head and the loss alone, forward and backward."""

from collections.abc import Iterator
from contextlib import nullcontext
from operator import attrgetter
from statistics import median

from lmsweep.trials.analytic.datasheets import find_device, peak_flops
from lmsweep.trials.bench.host_bound import queued_host_bound_flags
from lmsweep.trials.bench.iterations import take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.accelerator import counts_memory
from lmsweep.trials.machine.gpu.telemetry import Watch, gpu_flags
from lmsweep.trials.memory.meter import AllocatorMeter, TensorMeter
from lmsweep.trials.memory.rows import unknown_rows, value_rows
from lmsweep.trials.memory.storage_tracker import StorageTracker
from lmsweep.trials.model.compiler import check_compiled
from lmsweep.trials.model.loss_step import LossStep
from lmsweep.trials.results.measurement import Measurement, Yielded
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.timing.clock import Iteration
from lmsweep.trials.timing.queued_timer import QueuedTimer
from lmsweep.trials.workloads.memory import REPETITIONS, iterate


def measure(bench: Workbench) -> Iterator[Yielded]:
    """Time forward and backward, then read memory. Raises RuntimeError if a compiled loss compiled nothing."""
    config = bench.config
    bench.clear()  # a model of an earlier workload would count as the loss's memory
    with Watch(config.device_type) as watch, bench.quiet():
        step = LossStep(config, bench.math_mode)
        timer = QueuedTimer(
            step.phases(),
            config.device_type,
            warmup=config.warmup_steps,
            measured=config.measure_steps,
            drop=step.drop,
        )
        with bench.account("compile"):
            timer.from_idle()  # some packages compile at their first call, too
        if config.compiles:
            check_compiled(cuda_graphs=False)
        watch.wait()
        series = take_series(bench, timer, attrgetter("step"), before_measuring=timer.begin_measuring)
        host_bound = queued_host_bound_flags(bench, timer, series.measured)
    flags = (*host_bound, *series.flags, *gpu_flags(watch, since=series.since, until=series.until))
    for i, name in enumerate(("forward", "backward", "step")):
        warmup, samples = (tuple(_seconds(one, i) for one in taken) for taken in (series.warmup, series.measured))
        too_fast = (Flag.PHYSICS_VIOLATION,) if name == "step" and _exceeds(bench, median(samples)) else ()
        yield Measurement(
            phase=name, metric="time", unit="s", samples=samples, warmup_samples=warmup, flags=(*flags, *too_fast)
        )
    del step, timer  # a tracker counts only what is made under it
    yield from _memory(bench)


def _seconds(iteration: Iteration, index: int) -> float:
    return (*iteration.phases, iteration.step)[index]


def _exceeds(bench: Workbench, seconds: float) -> bool:
    met, config = bench.fingerprint("loss"), bench.config
    device = find_device(met.device_name, met.device_memory)
    peak = peak_flops(device, config.precision) if device else None
    tokens = config.batch_size * config.context_length
    return peak is not None and 6 * tokens * config.d_model * config.vocab_size > peak * seconds


def _memory(bench: Workbench) -> Iterator[Yielded]:
    device = bench.config.device_type
    counted = counts_memory(device)
    tracker = None if counted or bench.config.compiles else StorageTracker(device)
    meter = AllocatorMeter(device) if counted else TensorMeter(device, tracker)
    with bench.account("measured"), bench.quiet(), tracker or nullcontext():
        step = LossStep(bench.config, bench.math_mode)
        iterate(step, meter, None)  # libraries allocate their workspaces
        series = [iterate(step, meter, None) for _ in range(REPETITIONS)]
    yield from value_rows(series)
    yield from unknown_rows(bench.config, [phase.name for phase in step.phases()])
