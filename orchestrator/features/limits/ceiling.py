"""The workload `ceiling`: the rates of a large matrix product and of a large copy, which bound those of a model."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median

import torch

from lmsweep.trials.analytic.datasheets import Device, boost_of
from lmsweep.trials.bench.iterations import take_queued_series, time_rows
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.telemetry import Watch, gpu_flags
from lmsweep.trials.model.float8 import float8_product
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.timing.clock import Phase
from lmsweep.trials.timing.queued_timer import QueuedTimer
from lmsweep.trials.timing.validity_flags import above_peak


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Time a (d_model, d_model) product and a copy. The elements are random: on zeros a GPU keeps higher clocks."""
    config = bench.config
    bench.clear()  # a model of an earlier workload would take memory
    width, dtype, recipe = config.d_model, bench.math_mode.operand_dtype, bench.math_mode.float8_recipe
    left, right = (torch.randn(width, width, device=config.device_type).to(dtype) for _ in range(2))
    product, copy = torch.empty_like(left), torch.empty_like(left)
    matmul = float8_product(left, right, recipe) if recipe else partial(torch.mm, left, right, out=product)
    work = {"matmul": 2.0 * width**3, "copy": 2.0 * left.nbytes}
    timed = time_phases(bench, matmul=matmul, copy=lambda: copy.copy_(left))
    for row in timed:
        assert row.phase and row.samples, "every phase is timed"
        done, seconds = work[row.phase], median(row.samples)
        rates = tuple(done / each for each in row.samples)
        is_copy, device = row.phase == "copy", bench.datasheet
        is_wrong = above_bandwidth(done, seconds, device) if is_copy else above_peak(done, seconds, device, config)
        too_fast = (Flag.PHYSICS_VIOLATION,) if is_wrong else ()
        yield replace(row, flags=(*row.flags, *too_fast))
        rate, unit = ("flops_rate", "FLOP/s") if row.phase == "matmul" else ("bandwidth", "B/s")
        yield Measurement(phase=row.phase, metric=rate, unit=unit, samples=rates)


def above_bandwidth(moved: float, seconds: float, device: Device | None) -> bool:
    """Return whether a copy was faster than the device's memory and cache allow. False without a datasheet.

    moved: bytes read and written.
    """
    if device is None:
        return False
    # boost_of is the factor by which products may exceed the datasheet; here it is a margin for memory's clock.
    most_from_memory = boost_of(device) * device.bytes_per_second * seconds
    return moved - device.chip.cache_mib * 2**20 > most_from_memory  # the cache may hold what an earlier copy moved


def time_phases(bench: Workbench, **phases: Callable[[], object]) -> Iterator[Measurement]:
    """Yield `PHASE.time` in seconds for each keyword, flagged by its series and by the GPU's telemetry."""
    config = bench.config
    timer = QueuedTimer(
        [Phase(name=name, run=run) for name, run in phases.items()],
        config.device_type,
        warmup=config.warmup_steps,
        measured=config.measure_steps,
    )
    with Watch(config.device_type) as watch, bench.quiet():
        series = take_queued_series(bench, timer, watch)
    flags = (*series.flags, *gpu_flags(watch, since=series.since, until=series.until))
    yield from time_rows(series, list(phases), lambda _name, _seconds: flags)
