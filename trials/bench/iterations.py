"""The iterations of a measurement: the warm-up and the measured ones, a fixed number of each or `auto`."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.cpu_time import is_host_busy, read_cpu_time
from lmsweep.trials.machine.gpu.accelerator import counts_memory, device_module
from lmsweep.trials.model.compiler import compile_counts
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag, those_that_hold
from lmsweep.trials.statistics.speed_levels import has_levels
from lmsweep.trials.statistics.trend import is_drifting
from lmsweep.trials.timing.clock import Iteration
from lmsweep.trials.timing.stopping import MEASURE_LIMIT, WARMUP_LIMIT, is_narrow, is_steady, is_worth_little, repeat

Taken = TypeVar("Taken")


@dataclass(frozen=True, kw_only=True)
class Series(Generic[Taken]):
    warmup: list[Taken]
    measured: list[Taken]
    flags: tuple[Flag, ...]
    """Those of unsteady, not_converged, recompiled and busy_host that apply."""
    warmup_from: float
    """time.monotonic() at the start of the warm-up, and below of the measured iterations and at their end."""
    since: float
    until: float


def take_series(
    bench: Workbench,
    run: Callable[[], Taken],
    seconds: Callable[[Taken], float],
    *,
    before_measuring: Callable[[], object] = lambda: None,
) -> Series[Taken]:
    """Run iterations by the configuration's protocol; `run` waits for the device, `seconds` is the time of a result."""
    config = bench.config
    device_type = config.device_type

    def run_watched() -> tuple[Taken, int]:
        return run(), count_disturbances(device_type)

    before, graphs = count_disturbances(device_type), compile_counts().graphs

    def steady(taken: list[tuple[Taken, int]]) -> bool:
        return is_steady([seconds(one) for one, _ in taken], [before, *(count for _, count in taken)])

    def narrow(taken: list[Taken]) -> bool:
        return is_narrow([seconds(one) for one in taken], device_type, elapsed=time.monotonic() - since)

    warmup_from = time.monotonic()
    with bench.account("warmup"):
        watched, was_steady = repeat(run_watched, config.warmup_steps, steady, WARMUP_LIMIT, config.max_seconds)
    before_measuring()
    cpu_before = read_cpu_time()
    since = time.monotonic()
    with bench.account("measured"):
        measured, was_narrow = repeat(run, config.measure_steps, narrow, MEASURE_LIMIT, config.max_seconds)
    until = time.monotonic()
    cpu_after = read_cpu_time()
    times = [seconds(one) for one in measured]
    found = {
        Flag.UNSTEADY: not was_steady or is_drifting(times) or has_levels(times),
        Flag.NOT_CONVERGED: not was_narrow or is_worth_little(times),
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


def time_rows(
    series: Series[Iteration], names: Sequence[str], flags: Callable[[str, tuple[float, ...]], tuple[Flag, ...]]
) -> Iterator[Measurement]:
    """Yield `NAME.time` of these phases, the first ones, or `step`; `flags` takes a name and the measured seconds."""
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
