"""The workload `attention`: time and memory of the forward and backward of attention alone."""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np
import torch

from lmsweep.trials.analytic.datasheets import Device, find_device, peak_flops
from lmsweep.trials.analytic.formulas import attention_flops
from lmsweep.trials.analytic.median_interval import count_outliers
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.bench.iterations import Series, take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.telemetry import Watch, doubts
from lmsweep.trials.model.attention_step import AttentionStep
from lmsweep.trials.model.attention_support import check_attention
from lmsweep.trials.model.compiler import check_compiled
from lmsweep.trials.profiling.device_time import DeviceTime, device_row, is_host_bound, trace_device
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.timing.clock import Clock, Iteration, Phase, clock_for, time_iteration

PHASES = ("forward", "backward")
MEMORY_REPETITIONS = 3
"""Iterations in which memory is read; flagged `unsteady` if they do not agree exactly."""

Intervals = tuple[Iteration, ...]
"""The intervals of one iteration: forward and backward."""


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Time `measure_steps` iterations after `warmup_steps` equal ones, in seconds; then read memory, in bytes.

    Forward and backward are separate intervals: the device is idle before each. With `cold_l2`, the GPU's L2 cache is
    overwritten before each. The first iteration of compiled attention, in which the compiler runs, is timed separately
    and is not part of the warm-up.

    Raises UnsupportedError if the device lacks the kernel, and RuntimeError if nothing was compiled that should be.
    """
    config = bench.config
    check_attention(config, bench.math_mode.operand_dtype, gradients=True)
    if config.cold_l2 and config.device_type != "cuda":
        raise UnsupportedError("cold_l2 needs device: cuda; the caches of other devices cannot be emptied")
    bench.clear()  # a model of an earlier workload would count as memory
    with Watch(config.device_type) as watch, bench.quiet():
        step = AttentionStep(config, bench.math_mode)
        run_by = _iteration(config, step)
        run = partial(run_by, clock_for(config.device_type))
        step.give_gradient()
        if config.compiles:
            yield from _compile(bench, step, run)
        watch.wait()
        series = take_series(bench, run, lambda intervals: sum(interval.step for interval in intervals))
        traced: list[DeviceTime] = []
        if config.device_type == "cuda":
            with bench.account("profiled"):
                traced = trace_device(run_by, trial_seconds=bench.seconds_so_far)
    del run, run_by
    step.gradient = None
    yield from _times(config, series, traced, doubts(watch, since=series.since, until=series.until))
    with bench.account("measured"):
        memory = list(_memory(config.device_type, step))
    yield from memory


def _iteration(config: TrialConfig, step: AttentionStep) -> Callable[[Clock], Intervals]:
    flush = l2_flusher() if config.cold_l2 else None
    phases = [Phase(name=name, run=getattr(step, name)) for name in PHASES]

    def run(clock: Clock) -> Intervals:
        intervals = []
        for phase in phases:
            if flush:
                flush()
            intervals.append(time_iteration([phase], clock))
        step.drop()
        return tuple(intervals)

    return run


def _compile(bench: Workbench, step: AttentionStep, run: Callable[[], Intervals]) -> Iterator[Measurement]:
    with bench.account("compile"):
        first = run()
        if step.uses_cuda_graphs:
            run()  # the first iteration only compiles, the second records the graphs
    flags = check_compiled(cuda_graphs=step.uses_cuda_graphs)
    for name, interval in zip(PHASES, first, strict=True):
        yield Measurement(phase=name, metric="compile_time", unit="s", samples=(interval.step,), flags=flags)


def _times(
    config: TrialConfig, series: Series[Intervals], traced: list[DeviceTime], gpu_flags: tuple[Flag, ...]
) -> Iterator[Measurement]:
    """Time of each phase; on CUDA also the host's time to launch it and the device's busy time in it."""
    met = fingerprint(config.device_type)
    device = find_device(met.device_name, met.device_memory)
    for i, name in enumerate(PHASES):
        warmup, measured = [one[i] for one in series.warmup], [one[i] for one in series.measured]
        worked = [one.step for one in traced[i :: len(PHASES)]]
        yield Measurement(
            phase=name,
            metric="time",
            unit="s",
            samples=tuple(interval.step for interval in measured),
            warmup_samples=tuple(interval.step for interval in warmup),
            flags=series.flags + gpu_flags + flags_of_phase(config, name, measured, worked, device),
        )
        if config.device_type == "cuda":
            yield Measurement(
                phase=name,
                metric="enqueue_time",
                unit="s",
                samples=tuple(interval.enqueue for interval in measured if interval.enqueue is not None),
                warmup_samples=tuple(interval.enqueue for interval in warmup if interval.enqueue is not None),
            )
            yield device_row(name, "device_time", worked)


def flags_of_phase(
    config: TrialConfig, phase: str, measured: list[Iteration], worked: list[float], device: Device | None
) -> tuple[Flag, ...]:
    """The flags of one phase.

    `measured` are its timed intervals, `worked` the busy seconds of traced ones. `device` is the device's datasheet, if
    there is one.
    """
    seconds = [interval.step for interval in measured]
    peak = peak_flops(device, config.precision) if device else None
    shape = {name: getattr(config, name) for name in ("d_model", "context_length", "batch_size")}
    # Every causal implementation computes at least the scores on and below the diagonal, half of all.
    least = attention_flops(phase=phase, **shape) / (2 if config.causal else 1)
    found = {
        Flag.HOST_BOUND: is_host_bound(worked, seconds),
        Flag.OUTLIERS: count_outliers(np.array([seconds]))[0] > 0,
        Flag.PHYSICS_VIOLATION: peak is not None and least > peak * median(seconds),
    }
    return tuple(flag for flag, holds in found.items() if holds)


def _memory(device_type: str, step: AttentionStep) -> Iterator[Measurement]:
    """Bytes handed out by PyTorch's allocator, before each phase and at the peak of each."""
    readings = [("baseline", "allocated"), ("before_backward", "allocated")]
    readings += [(phase, "peak_allocated") for phase in PHASES]
    of = partial(Measurement, unit="B")
    if device_type != "cuda":
        reason = f"PyTorch does not count what it allocates on device {device_type}"
        for phase, metric in readings:
            yield of(phase=phase, metric=metric, samples=None, reason=reason)
        return
    samples = [_read_once(step) for _ in range(MEMORY_REPETITIONS)]
    for (phase, metric), values in zip(readings, zip(*samples, strict=True), strict=True):
        flags = (Flag.UNSTEADY,) if len(set(values)) > 1 else ()
        yield of(phase=phase, metric=metric, samples=tuple(values), flags=flags)


class _Allocated(NamedTuple):
    """Bytes handed out in one iteration."""

    baseline: int
    """Queries, keys, values, and workspaces of libraries."""
    before_backward: int
    """Also the output and what is saved for backward, but not yet the gradient of the output."""
    forward_peak: int
    backward_peak: int


def _read_once(step: AttentionStep) -> _Allocated:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    baseline = torch.cuda.memory_allocated()
    step.forward()
    torch.cuda.synchronize()
    before_backward, forward_peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    step.give_gradient()
    torch.cuda.reset_peak_memory_stats()
    step.backward()
    torch.cuda.synchronize()
    backward_peak = torch.cuda.max_memory_allocated()
    step.drop()
    step.gradient = None
    return _Allocated(baseline, before_backward, forward_peak, backward_peak)


def l2_flusher() -> Callable[[], object]:
    """A function that overwrites the current GPU's L2 cache, with zeros of twice its size."""
    size = torch.cuda.get_device_properties().L2_cache_size
    return torch.empty(2 * size, dtype=torch.uint8, device="cuda").zero_
