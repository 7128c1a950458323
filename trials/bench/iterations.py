"""The iterations of a measurement: a warm-up, then the measured ones, as many as were asked for or as it takes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.cpu_time import is_host_busy, read_cpu_time
from lmsweep.trials.model.compiler import compile_counts
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.timing.stopping import MEASURE_LIMIT, WARMUP_LIMIT, is_narrow, is_steady, is_worth_little, repeat
from lmsweep.trials.timing.trend import is_drifting

Taken = TypeVar("Taken")


@dataclass(frozen=True, kw_only=True)
class Series(Generic[Taken]):
    """What each iteration returned, in order, and what is to be said of all of them."""

    warmup: list[Taken]
    measured: list[Taken]
    flags: tuple[Flag, ...]
    """unsteady, not_converged, recompiled, busy_host."""
    warmup_from: float
    """time.monotonic() when the warm-up began."""
    since: float
    """time.monotonic() when the measured iterations began."""
    until: float
    """time.monotonic() when they ended."""


def take_series(bench: Workbench, run: Callable[[], Taken], seconds: Callable[[Taken], float]) -> Series[Taken]:
    """Runs warm-up and measured iterations by the configuration's protocol.

    `run` is one iteration, which leaves no work behind on the device; `seconds` is the time of what it returned.
    """
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
    cpu_before = read_cpu_time()
    since = time.monotonic()
    with bench.account("measured"):
        measured, was_narrow = repeat(run, config.measure_steps, narrow, MEASURE_LIMIT, config.max_seconds)
    until = time.monotonic()
    cpu_after = read_cpu_time()
    times = [seconds(one) for one in measured]
    found = {
        Flag.UNSTEADY: not was_steady or is_drifting(times),
        Flag.NOT_CONVERGED: not was_narrow or is_worth_little(times),
        Flag.RECOMPILED: compile_counts().graphs > graphs,
        Flag.BUSY_HOST: is_host_busy(cpu_before, cpu_after, device_type),
    }
    return Series(
        warmup=[one for one, _ in watched],
        measured=measured,
        flags=tuple(flag for flag, holds in found.items() if holds),
        warmup_from=warmup_from,
        since=since,
        until=until,
    )


def count_disturbances(device_type: str) -> int:
    """Graphs compiled, memory segments asked of the GPU's driver and allocator retries so far in this process."""
    graphs = compile_counts().graphs
    if device_type != "cuda":
        return graphs
    memory = torch.cuda.memory_stats_as_nested_dict()
    segments, retries = memory["segment"]["all"]["allocated"], memory["num_alloc_retries"]
    return graphs + int(segments) + int(retries)
