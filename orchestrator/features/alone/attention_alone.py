"""The workload `attention`: time and memory of attention alone, forward and backward."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

import numpy as np
import torch

from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.analytic.formulas import PASSES, attention_flops
from lmsweep.trials.analytic.packed_scores import least_share_of_scores
from lmsweep.trials.bench.attention_error import flags_of_errors, own_attention_errors
from lmsweep.trials.bench.iterations import Series, compile_rows, take_queued_series, time_rows
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.accelerator import counts_memory, device_module, has_events, l2_cache_bytes
from lmsweep.trials.machine.gpu.telemetry import Watch, gpu_flags
from lmsweep.trials.model.attention_step import AttentionStep
from lmsweep.trials.model.transformer.attention_support import check_attention
from lmsweep.trials.model.users.users_attention import probe_attention
from lmsweep.trials.profiling.device_time import DeviceTime, device_row, trace_device
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag, those_that_hold
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.statistics.median_interval import count_outliers
from lmsweep.trials.timing.clock import Iteration, Phase
from lmsweep.trials.timing.queued_timer import QueuedTimer
from lmsweep.trials.timing.validity_flags import above_peak

PHASES = ("forward", "backward")
_WITHOUT_BACKWARD = (("backward", "time", "s"), ("step", "time", "s"), ("backward", "peak_allocated", "B"))
"""Rows that are null if the user's attention has no backward."""
MEMORY_REPETITIONS = 3
"""Iterations in which memory is read. A reading that differs between them is flagged `unsteady`."""

LATENCY_ITERATIONS = 10
"""Iterations, after the measured ones, in which each phase begins on an idle device."""


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Time forward and backward, queued so that no kernel waits for the host; then read memory in bytes."""
    config = bench.config
    own = is_reference(config.attention)
    # For the user's own attention, the probe below finds out whether it has a backward.
    check_attention(config, bench.math_mode.operand_dtype, gradients=config.mode != "forward" and not own)
    phases = phases_of(config)
    errors = own_attention_errors(bench, gradients=len(phases) > 1)
    yield from errors
    probe = probe_attention(config, device=config.device_type, dtype=bench.math_mode.operand_dtype) if own else None
    why_no_backward = probe.no_backward if probe and len(phases) > 1 else None
    if why_no_backward:
        phases = phases[:1]
    bench.clear()  # the model of an earlier workload would count as attention's memory
    with Watch(config.device_type) as watch, bench.quiet():
        step = AttentionStep(config, bench.math_mode, output_dtype=probe.output_dtype if probe else None)
        if len(phases) > 1:
            step.give_gradient()
        timer = QueuedTimer(
            [Phase(name=name, run=getattr(step, name)) for name in phases],
            config.device_type,
            warmup=config.warmup_steps,
            measured=config.measure_steps,
            before_each=l2_flusher(config.device_type) if config.cold_l2 else None,
            drop=step.drop,
        )
        if config.compiles:
            yield from compile_rows(bench, timer.from_idle, phases, cuda_graphs=step.uses_cuda_graphs)
        series = take_queued_series(bench, timer, watch)
        latencies: list[Iteration] = []
        traced: list[DeviceTime] = []
        if has_events(config.device_type):
            with bench.account("profiled"):
                latencies = [timer.from_idle() for _ in range(LATENCY_ITERATIONS)]
                traced = trace_device(
                    timer.from_idle, device_type=config.device_type, trial_seconds=bench.seconds_so_far
                )
    # Neither the gradient nor the timer's buffer, which overwrites the L2 cache, is attention's memory.
    del timer
    step.gradient = None
    common = (*flags_of_errors(errors), *series.flags, *gpu_flags(watch, since=series.since, until=series.until))
    yield from _times(bench, phases, series, latencies, traced, common)
    with bench.account("measured"):
        memory = list(_memory(config.device_type, step, phases))
    yield from memory
    if why_no_backward:
        for phase, metric, unit in _WITHOUT_BACKWARD:
            yield Measurement(phase=phase, metric=metric, unit=unit, samples=None, reason=why_no_backward)


def phases_of(config: TrialConfig) -> tuple[str, ...]:
    return PHASES if PASSES[config.mode] > 1 else PHASES[:1]


def _times(
    bench: Workbench,
    phases: Sequence[str],
    series: Series[Iteration],
    latencies: Sequence[Iteration],
    traced: Sequence[DeviceTime],
    common: tuple[Flag, ...],
) -> Iterator[Measurement]:
    """Yield the times of each phase, all in seconds. traced: for each iteration an entry of each phase, which is traced
    by itself. common: flags of every row that is timed in `series`."""
    config, device = bench.config, bench.datasheet
    # If the mode has a backward but the attention has none, nothing is a step: forward alone is not.
    names = (*phases, "step") if phases == phases_of(config) else phases
    yield from time_rows(series, names, lambda name, seconds: common + flags_of_phase(config, name, seconds, device))
    if has_events(config.device_type):
        for i, name in enumerate(phases):
            samples = tuple(one.phases[i] for one in latencies)
            yield Measurement(phase=name, metric="latency", unit="s", samples=samples)
            of_phase = traced[i :: len(phases)]
            yield device_row(name, "device_time", [one.step for one in of_phase])
        enqueued = tuple(one.enqueue for one in series.measured if one.enqueue is not None)
        yield Measurement(phase="step", metric="enqueue_time", unit="s", samples=enqueued)


def flags_of_phase(
    config: TrialConfig, phase: str, seconds: Sequence[float], device: Device | None
) -> tuple[Flag, ...]:
    """Return the flags of a phase: whether it has outliers, and whether it was faster than the device's peak allows."""
    shape = {name: getattr(config, name) for name in ("context_length", "batch_size")}
    shape["d_model"] = config.head_width * (config.num_heads or 1)  # num_heads may be None: one head, d_model wide
    # Every implementation must compute the scores that its mask leaves: causal, of the window, within documents.
    parts = phases_of(config) if phase == "step" else (phase,)
    least = sum(attention_flops(phase=part, **shape) for part in parts)
    least *= least_share_of_scores(config)
    holds = {
        Flag.OUTLIERS: count_outliers(np.array([seconds]))[0] > 0,
        Flag.PHYSICS_VIOLATION: above_peak(least, median(seconds), device, config),
    }
    return those_that_hold(holds)


def _memory(device_type: str, step: AttentionStep, phases: Sequence[str]) -> Iterator[Measurement]:
    readings = [("baseline", "allocated"), ("before_backward", "allocated")]
    readings += [(phase, "peak_allocated") for phase in phases]
    in_bytes = partial(Measurement, unit="B")
    if not counts_memory(device_type):
        reason = f"PyTorch does not count what it allocates on device {device_type}"
        for phase, metric in readings:
            yield in_bytes(phase=phase, metric=metric, samples=None, reason=reason)
        return
    samples = [_read_once(step, device_type, with_backward=len(phases) > 1) for _ in range(MEMORY_REPETITIONS)]
    for (phase, metric), values in zip(readings, zip(*samples, strict=True), strict=True):
        flags = (Flag.UNSTEADY,) if len(set(values)) > 1 else ()
        yield in_bytes(phase=phase, metric=metric, samples=tuple(values), flags=flags)


def _read_once(step: AttentionStep, device_type: str, *, with_backward: bool) -> list[int]:
    """Return the bytes held before forward (queries, keys, values and the workspaces of libraries), those held before
    backward (not yet the gradient of the output), the peak of forward, and with backward its peak."""
    device = device_module(device_type)
    device.synchronize()
    device.reset_peak_memory_stats()
    baseline = device.memory_allocated()
    step.forward()
    device.synchronize()
    readings = [baseline, device.memory_allocated(), device.max_memory_allocated()]
    if with_backward:
        step.give_gradient()
        device.reset_peak_memory_stats()  # without what drawing the gradient took
        step.backward()
        device.synchronize()
        readings.append(device.max_memory_allocated())
    step.drop()
    step.gradient = None
    return readings


def l2_flusher(device_type: str) -> Callable[[], object]:
    """Return a function that overwrites the L2 cache by writing zeros: twice its size, so that nothing else stays."""
    size = l2_cache_bytes(device_type) or 0
    return torch.empty(2 * size, dtype=torch.uint8, device=device_type).zero_
