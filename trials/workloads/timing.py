"""Timing: how long each phase of a training iteration takes."""

from collections.abc import Iterator, Sequence
from statistics import median

from trials.clock import Iteration, clock_for, time_iteration
from trials.compilation import compile_counts
from trials.record import Measurement
from trials.spec import Flag
from trials.workbench import Workbench

HOST_BOUND_SHARE = 0.9
"""Enqueue time over device time from which a step counts as limited by the host."""


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Times `measure_steps` iterations after `warmup_steps` equal ones, phase by phase; seconds.

    A compiled model's first iteration, in which the compiler runs, is timed apart and is no part of the warm-up.
    Raises RuntimeError where a model that should be compiled ran without a compiled graph.
    """
    config = bench.config
    phases = bench.step.phases()
    clock = clock_for(config.device_type)

    def run() -> Iteration:
        iteration = time_iteration(phases, clock)
        bench.step.drop()
        return iteration

    with bench.quiet():
        if config.compile != "none":
            with bench.account("compile"):
                first = run()
            counts = compile_counts()
            if counts.graphs == 0:
                raise RuntimeError("torch.compile made no graph: the model would have run eagerly")
            cold = (Flag.COLD_CACHE,) if counts.cache_misses else ()
            for phase, seconds in zip(phases, first.phases, strict=True):
                if phase.name != "optimizer":  # the optimizer is never compiled
                    yield Measurement(phase=phase.name, metric="compile_time", unit="s", samples=(seconds,), flags=cold)
        with bench.account("warmup"):
            warmup = [run() for _ in range(config.warmup_steps)]
        with bench.account("measured"):
            measured = [run() for _ in range(config.measure_steps)]

    flags = (Flag.HOST_BOUND,) if is_host_bound(measured) else ()
    for i, phase in enumerate(phases):
        yield Measurement(
            phase=phase.name,
            metric="time",
            unit="s",
            samples=tuple(iteration.phases[i] for iteration in measured),
            warmup_samples=tuple(iteration.phases[i] for iteration in warmup),
            flags=flags,
        )
    yield Measurement(
        phase="step",
        metric="time",
        unit="s",
        samples=tuple(iteration.step for iteration in measured),
        warmup_samples=tuple(iteration.step for iteration in warmup),
        flags=flags,
    )
    if config.device_type == "cuda":
        yield Measurement(
            phase="step",
            metric="enqueue_time",
            unit="s",
            samples=tuple(iteration.enqueue for iteration in measured if iteration.enqueue is not None),
            warmup_samples=tuple(iteration.enqueue for iteration in warmup if iteration.enqueue is not None),
        )


def is_host_bound(iterations: Sequence[Iteration]) -> bool:
    """Whether launching the work took the host nearly as long as the device took for it, at the median."""
    shares = [iteration.enqueue / iteration.step for iteration in iterations if iteration.enqueue is not None]
    return bool(shares) and median(shares) >= HOST_BOUND_SHARE
