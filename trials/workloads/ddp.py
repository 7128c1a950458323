"""The workload `ddp`: a data-parallel training step on several ranks, and how much of its communication is exposed."""

import time
from collections.abc import Iterator, Sequence

from lmsweep.trials.analytic.rates.collective_rates import bus_factor
from lmsweep.trials.bench.iterations import host_bound_flags, take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.parallel.data_parallel_step import (
    DataParallelStep,
    RankMemory,
)
from lmsweep.trials.distributed.parallel.step_checks import verify
from lmsweep.trials.distributed.ranks.coordinator import Team
from lmsweep.trials.distributed.ranks.watched_rank import WatchedRank
from lmsweep.trials.distributed.traffic.comm_trace import (
    FILE_NAME,
    Communication,
    merge_traces,
    trace_communication,
    trace_step,
)
from lmsweep.trials.distributed.traffic.step_pairs import StepPairs, pair_rows
from lmsweep.trials.distributed.traffic.step_report import report_rows, report_step
from lmsweep.trials.model.compiler import check_compiled
from lmsweep.trials.model.transformer.attention_support import check_attention
from lmsweep.trials.profiling.device_time import device_row
from lmsweep.trials.profiling.torch_trace import trace_file
from lmsweep.trials.results.measurement import Measurement, Yielded
from lmsweep.trials.results.outcome import Flag

ALL_REDUCE_WARMUP = 3
ALL_REDUCES = 10
"""Isolated all-reduces that are timed, after ALL_REDUCE_WARMUP untimed ones."""


def measure(bench: Workbench) -> Iterator[Yielded]:
    """Check gradients and weights, then time pairs of steps; rank 0 yields. Raises RanksDisagreeError."""
    config = bench.config
    check_attention(config, bench.math_mode.operand_dtype, gradients=True)
    assert bench.rank is not None, "the workload runs in ranks"
    with bench.quiet():
        step = DataParallelStep(config, bench.math_mode)
        team = Team(step, bench.rank)
        if bench.rank.index > 0:
            team.follow()
            return
        yield from lead(bench, team)
        team.release()
        bench.repeated_layers = step.training.repeated_layers


def lead(bench: Workbench, team: Team[DataParallelStep]) -> Iterator[Yielded]:
    config = bench.config
    gradients = team.all(DataParallelStep.build)[0]
    with bench.account("warmup"):
        for _ in range(ALL_REDUCE_WARMUP):
            team.all(DataParallelStep.time_all_reduce)
    with bench.account("measured"):
        all_reduces = [max(team.all(DataParallelStep.time_all_reduce)) for _ in range(ALL_REDUCES)]
    with bench.account("compile" if config.compiles else "warmup"):
        checks = list(verify(team, config))
    if config.compiles:
        check_compiled()
    team.all(WatchedRank.watch)
    pairs = StepPairs(team)
    series = take_series(bench, pairs.run, lambda pair: pair.synchronized.step)
    now = time.monotonic()
    doubtful = team.all(WatchedRank.end_watch, since_ago=now - series.since, until_ago=now - series.until)
    with bench.account("measured"):
        # Not during the pairs: a step without synchronization holds both gradients and their buckets in memory.
        team.all(DataParallelStep.reset_peak_memory)
        team.all(DataParallelStep.step)
        memory = team.all(DataParallelStep.memory)
        traces = team.all(trace_communication)
        merged = merge_traces(team.all(trace_step), one_host=config.nodes == 1)
        reports = team.all(report_step)  # last: compiled code runs eagerly from here on, since operators are watched

    yield from checks
    own_flags = (Flag.DISAGREES,) if any(Flag.DISAGREES in check.flags for check in checks) else ()
    gpu_flags = tuple(dict.fromkeys(flag for of_rank in doubtful for flag in of_rank))
    if config.device_type == "cuda":
        worked = [min(trace.worked for trace in traces)]
        gpu_flags = (*host_bound_flags(worked, [pair.synchronized.step for pair in series.measured]), *gpu_flags)
        yield device_row("step", "device_time", worked)
    yield from pair_rows(
        config,
        bench.datasheet,
        series.warmup,
        series.measured,
        doubtful=series.flags + own_flags + gpu_flags,
        does_not_fit=pairs.does_not_fit,
    )
    yield from _communication(traces)
    yield from report_rows(reports)
    yield trace_file(FILE_NAME, merged)
    yield from _memory(memory, config.device_type)
    yield from _bandwidth(bench, gradients, all_reduces)


def _communication(traces: Sequence[Communication]) -> Iterator[Measurement]:
    last = min(traces, key=lambda trace: trace.busy)
    yield Measurement(phase="communication", metric="collectives", unit="1", samples=(last.collectives,))
    yield Measurement(phase="communication", metric="busy_time", unit="s", samples=(last.busy,))
    yield Measurement(phase="communication", metric="overlap_time", unit="s", samples=(last.overlap,))
    for kind, found in last.kinds.items():
        yield Measurement(phase=kind, metric="busy_time", unit="s", samples=(found.busy,))
        yield Measurement(phase=kind, metric="overlap_time", unit="s", samples=(found.overlap,))


def _memory(memory: Sequence[RankMemory], device_type: str) -> Iterator[Measurement]:
    reason = f"PyTorch does not count what it allocates on device {device_type}"
    known = [one.peak_allocated for one in memory if one.peak_allocated is not None]
    whole = (max(known),) if known else None
    yield Measurement(phase="step", metric="peak_allocated", unit="B", samples=whole, reason=None if whole else reason)
    for rank, one in enumerate(memory):
        samples, why = ((one.peak_allocated,), None) if one.peak_allocated is not None else (None, reason)
        yield Measurement(phase=f"rank{rank}", metric="peak_allocated", unit="B", samples=samples, reason=why)
        state = None if one.optimizer_state is None else (one.optimizer_state,)
        hidden = None if state else "the optimizer keeps its state neither in `state` nor in an optimizer that it holds"
        yield Measurement(phase=f"rank{rank}", metric="optimizer_state", unit="B", samples=state, reason=hidden)


def _bandwidth(bench: Workbench, gradients: int, seconds: Sequence[float]) -> Iterator[Measurement]:
    config = bench.config
    size = gradients * bench.math_mode.parameter_dtype.itemsize
    factor = bus_factor("all_reduce", config.world_size)
    alone = None if factor else "one rank sends nothing"
    yield Measurement(phase="gradients", metric="size", unit="B", samples=(size,))
    yield Measurement(phase="all_reduce", metric="time", unit="s", samples=tuple(seconds))
    for metric, scale in (("algorithm_bandwidth", 1.0), ("bus_bandwidth", factor)):
        samples = tuple(scale * size / one for one in seconds) if factor else None
        yield Measurement(phase="all_reduce", metric=metric, unit="B/s", samples=samples, reason=alone)
