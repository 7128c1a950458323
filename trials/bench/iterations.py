"""The iterations of a measurement: the warm-up and the measured ones; whether the device waited for the host."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import median
from typing import Generic, TypeVar

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.cpu_time import is_host_busy, read_cpu_time
from lmsweep.trials.machine.gpu.accelerator import counts_memory, device_module
from lmsweep.trials.machine.gpu.telemetry import Watch
from lmsweep.trials.model.compiler import check_compiled, compile_counts
from lmsweep.trials.profiling.device_time import trace_device
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag, those_that_hold
from lmsweep.trials.statistics.trend import has_levels, is_drifting
from lmsweep.trials.timing.clock import Iteration
from lmsweep.trials.timing.queued_timer import QueuedTimer
from lmsweep.trials.timing.stopping import MEASURE_LIMIT, WARMUP_LIMIT, is_narrow, is_steady, is_too_correlated, repeat

Taken = TypeVar("Taken")


@dataclass(frozen=True, kw_only=True)
class Series(Generic[Taken]):
    warmup: list[Taken]
    measured: list[Taken]
    flags: tuple[Flag, ...]
    """Those of unsteady, not_converged, recompiled and busy_host that apply."""
    warmup_from: float
    """When the warm-up began, by time.monotonic()."""
    since: float
    """When the measured iterations began."""
    until: float
    """When they ended."""


def take_series(
    bench: Workbench,
    run: Callable[[], Taken],
    seconds: Callable[[Taken], float],
    *,
    before_measuring: Callable[[], object] = lambda: None,
) -> Series[Taken]:
    """Run iterations by the configuration's protocol; `run` waits for the device, `seconds` is the time of a result."""
    config, device_type = bench.config, bench.config.device_type
    comparable = not config.varies  # times of different batches say nothing about each other

    def run_watched() -> tuple[Taken, int]:
        return run(), count_disturbances(device_type)

    disturbed, graphs = count_disturbances(device_type), compile_counts().graphs  # so far

    def steady(taken: list[tuple[Taken, int]]) -> bool:
        times = [seconds(one) if comparable else 1.0 for one, _ in taken]
        return is_steady(times, [disturbed, *(count for _, count in taken)])

    def narrow(taken: list[Taken]) -> bool:  # asked once `since` is known
        return is_narrow([seconds(one) for one in taken], device_type, elapsed=time.monotonic() - since)

    warmup_from = time.monotonic()
    with bench.account("warmup"):
        watched, was_steady = repeat(run_watched, config.warmup_steps, steady, WARMUP_LIMIT, config.max_seconds)
    before_measuring()
    cpu_before = read_cpu_time()
    since = time.monotonic()
    with bench.account("measured"):
        steps = config.batches if config.varies else config.measure_steps
        measured, was_narrow = repeat(run, steps, narrow, MEASURE_LIMIT, config.max_seconds)
    until = time.monotonic()
    cpu_after = read_cpu_time()
    times = [seconds(one) for one in measured]
    found = {
        Flag.UNSTEADY: comparable and (not was_steady or is_drifting(times) or has_levels(times)),
        Flag.NOT_CONVERGED: comparable and (not was_narrow or is_too_correlated(times)),
        Flag.RECOMPILED: compile_counts().graphs > graphs,
        Flag.BUSY_HOST: is_host_busy(cpu_before, cpu_after, device_type),
    }
    return Series(
        warmup=[one for one, _ in watched],
        measured=measured,
        flags=those_that_hold(found),
        warmup_from=warmup_from,
        since=since,
        until=until,
    )


def compile_rows(
    bench: Workbench, run: Callable[[], Iteration], names: Sequence[str], *, cuda_graphs: bool
) -> Iterator[Measurement]:
    """Run the first iteration, which compiles, and yield `NAME.compile_time` of its phases, except the optimizer, which
    is never compiled. Raises what `check_compiled` raises."""
    with bench.account("compile"):
        first = run()
        if cuda_graphs:
            run()  # the first iteration only compiles, the second records the graphs
    flags = check_compiled(cuda_graphs=cuda_graphs)
    for name, seconds in zip(names, first.phases, strict=True):
        if name != "optimizer":
            yield Measurement(phase=name, metric="compile_time", unit="s", samples=(seconds,), flags=flags)


def time_rows(
    series: Series[Iteration], names: Sequence[str], flags: Callable[[str, tuple[float, ...]], tuple[Flag, ...]]
) -> Iterator[Measurement]:
    """Yield `NAME.time` of each name: the i-th is that of the i-th phase of an iteration, or `step` for the whole.
    `flags` takes a name and the measured seconds."""
    for i, name in enumerate(names):
        warmup, samples = (
            tuple(one.step if name == "step" else one.phases[i] for one in taken)
            for taken in (series.warmup, series.measured)
        )
        found = flags(name, samples)
        yield Measurement(phase=name, metric="time", unit="s", samples=samples, warmup_samples=warmup, flags=found)


def count_disturbances(device_type: str) -> int:
    """Return how many graphs were compiled, memory segments allocated and allocations retried so far."""
    graphs = compile_counts().graphs
    memory = device_module(device_type).memory_stats_as_nested_dict() if counts_memory(device_type) else {}
    if "segment" not in memory:
        return graphs
    segments, retries = memory["segment"]["all"]["allocated"], memory["num_alloc_retries"]
    return graphs + int(segments) + int(retries)


IDLE_SHARE = 0.05
"""Share of a step that the device may be idle before the step is flagged `host_bound`."""


def host_bound_flags(busy: Sequence[float], measured: Sequence[float]) -> tuple[Flag, ...]:
    """Return host_bound if the device works (`busy` seconds a step, if known) for less than 95 % of the median step."""
    return (Flag.HOST_BOUND,) if busy and median(busy) < (1 - IDLE_SHARE) * median(measured) else ()


def take_queued_series(bench: Workbench, timer: QueuedTimer, watch: Watch) -> Series[Iteration]:
    """Run iterations of the timer once the watch has begun; the flags also say whether the device waited."""
    watch.wait()
    series = take_series(bench, timer, attrgetter("step"), before_measuring=timer.begin_measuring)
    return replace(series, flags=(*_queued_host_bound_flags(bench, timer, series.measured), *series.flags))


def _queued_host_bound_flags(bench: Workbench, timer: QueuedTimer, measured: Sequence[Iteration]) -> tuple[Flag, ...]:
    """Return the flag host_bound if the device was idle during `measured` iterations that were queued ahead.

    It was not if the host stayed ahead. A host that fell behind may only have waited for the device: a loss that reads
    the number of targets does so. Hence a few more iterations are traced; without device times, the flag stays.
    """
    if not timer.fell_behind:
        return ()
    with bench.account("profiled"):
        traced = trace_device(timer.from_idle, device_type=bench.config.device_type, trial_seconds=bench.seconds_so_far)
    each = len(timer.phases)  # `from_idle` traces each phase separately, so an iteration is this many entries
    busy = [sum(one.step for one in traced[i : i + each]) for i in range(0, len(traced), each)]
    return host_bound_flags(busy, [one.step for one in measured]) if busy else (Flag.HOST_BOUND,)
