"""The workload `ceiling`: the rates of a large matrix product and of a large copy, which bound those of a model."""

from collections.abc import Iterator
from operator import attrgetter
from statistics import median

import torch

from lmsweep.trials.analytic.datasheets import find_device, peak_flops
from lmsweep.trials.bench.iterations import take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.telemetry import Watch, doubts
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.timing.clock import Phase
from lmsweep.trials.timing.queued_timer import QueuedTimer


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Time the product of two (d_model, d_model) matrices, in the trial's precision, and the copy of one; seconds.

    Rates: 2 d_model³ FLOP per product, and bytes read plus bytes written per copy. The elements are random, because on
    zeros a GPU draws less power and keeps higher clocks.
    """
    config = bench.config
    bench.clear()  # a model of an earlier workload would take memory
    width, dtype = config.d_model, bench.math_mode.operand_dtype
    one, other = (torch.randn(width, width, device=config.device_type).to(dtype) for _ in range(2))
    product, copy = torch.empty_like(one), torch.empty_like(one)
    phases = [
        Phase(name="matmul", run=lambda: torch.mm(one, other, out=product)),
        Phase(name="copy", run=lambda: copy.copy_(one)),
    ]
    timer = QueuedTimer(phases, config.device_type, warmup=config.warmup_steps, measured=config.measure_steps)
    with Watch(config.device_type) as watch, bench.quiet():
        watch.wait()
        series = take_series(bench, timer, attrgetter("step"), before_measuring=timer.begin_measuring)
    limit = (Flag.HOST_BOUND,) if timer.waited_for_host else ()
    flags = limit + series.flags + doubts(watch, since=series.since, until=series.until)
    work = {"matmul": 2.0 * width**3, "copy": 2.0 * one.nbytes}
    for i, phase in enumerate(phases):
        seconds = [taken.phases[i] for taken in series.measured]
        warmup = tuple(taken.phases[i] for taken in series.warmup)
        rates = tuple(work[phase.name] / one for one in seconds)
        rate, unit = ("flops_rate", "FLOP/s") if phase.name == "matmul" else ("bandwidth", "B/s")
        found = flags + ((Flag.PHYSICS_VIOLATION,) if _exceeds(bench, phase.name, median(rates)) else ())
        yield Measurement(
            phase=phase.name, metric="time", unit="s", samples=tuple(seconds), warmup_samples=warmup, flags=found
        )
        yield Measurement(phase=phase.name, metric=rate, unit=unit, samples=rates)


def _exceeds(bench: Workbench, phase: str, rate: float) -> bool:
    met = bench.fingerprint("ceiling")
    device = find_device(met.device_name, met.device_memory)
    if device is None:
        return False
    peak = peak_flops(device, bench.config.precision) if phase == "matmul" else device.bytes_per_second
    return peak is not None and rate > peak
