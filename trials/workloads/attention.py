"""Attention alone: how long its forward and its backward take, and what it holds in memory before and in them."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from trials.attention_step import AttentionStep
from trials.attention_support import check_attention
from trials.clock import Iteration, Phase, clock_for, time_iteration
from trials.compilation import check_compiled
from trials.record import Measurement
from trials.spec import Flag, UnsupportedError
from trials.workbench import Workbench
from trials.workloads.timing import is_host_bound

PHASES = ("forward", "backward")
MEMORY_REPETITIONS = 3
"""Iterations in which memory is read; they should agree exactly."""


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Times `measure_steps` iterations after `warmup_steps` equal ones; seconds. Then reads memory in others; bytes.

    The device is idle when forward begins and idle again when backward begins: each is an interval of its own. With
    `cold_l2` the GPU's L2 cache is overwritten before each. The first iteration of what is compiled, in which the
    compiler runs, is timed apart and is no part of the warm-up.

    Raises UnsupportedError where the device lacks the kernel, and RuntimeError where what should be compiled was not.
    """
    config = bench.config
    check_attention(config, bench.math_mode.operand_dtype, gradients=True)
    if config.cold_l2 and config.device_type != "cuda":
        raise UnsupportedError("cold_l2 needs device: cuda; there is no way here to empty another device's cache")
    bench.clear()  # a model of an earlier workload would count as memory
    with bench.quiet():
        with bench.account("setup"):
            step = AttentionStep(config, bench.math_mode)
        yield from _times(bench, step)
        with bench.account("measured"):
            memory = list(_memory(config.device_type, step))
        yield from memory


def _times(bench: Workbench, step: AttentionStep) -> Iterator[Measurement]:
    config = bench.config
    clock = clock_for(config.device_type)
    flush = l2_flusher() if config.cold_l2 else None
    phases = tuple(Phase(name=name, run=getattr(step, name)) for name in PHASES)
    step.give_gradient()

    def run() -> tuple[Iteration, ...]:
        intervals = []
        for phase in phases:
            if flush:
                flush()
            intervals.append(time_iteration([phase], clock))
        step.drop()
        return tuple(intervals)

    if config.compiles:
        with bench.account("compile"):
            first = run()
        flags = check_compiled()
        for name, interval in zip(PHASES, first, strict=True):
            yield Measurement(phase=name, metric="compile_time", unit="s", samples=(interval.step,), flags=flags)
    with bench.account("warmup"):
        warmup = [run() for _ in range(config.warmup_steps)]
    with bench.account("measured"):
        measured = [run() for _ in range(config.measure_steps)]
    step.gradient = None

    for i, name in enumerate(PHASES):
        before, samples = [pair[i] for pair in warmup], [pair[i] for pair in measured]
        yield Measurement(
            phase=name,
            metric="time",
            unit="s",
            samples=tuple(interval.step for interval in samples),
            warmup_samples=tuple(interval.step for interval in before),
            flags=(Flag.HOST_BOUND,) if is_host_bound(samples) else (),
        )
        if config.device_type == "cuda":
            yield Measurement(
                phase=name,
                metric="enqueue_time",
                unit="s",
                samples=tuple(interval.enqueue for interval in samples if interval.enqueue is not None),
                warmup_samples=tuple(interval.enqueue for interval in before if interval.enqueue is not None),
            )


def _memory(device_type: str, step: AttentionStep) -> Iterator[Measurement]:
    """Bytes that PyTorch's allocator has handed out: queries, keys, values and libraries' workspaces; these, the output
    and what is kept for backward; the most in forward and in backward. Backward's gradient comes after the second.
    """
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
        yield of(phase=phase, metric=metric, samples=tuple(values))


def _read_once(step: AttentionStep) -> tuple[int, int, int, int]:
    """Bytes in use before forward and before backward, and at the peaks of forward and backward."""
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
    return baseline, before_backward, forward_peak, backward_peak


def l2_flusher() -> Callable[[], object]:
    """Overwrites the current GPU's L2 cache when called, with zeros of twice its size."""
    size = torch.cuda.get_device_properties().L2_cache_size
    return torch.empty(2 * size, dtype=torch.uint8, device="cuda").zero_
