"""The workload `ddp`: a data-parallel training step on several ranks, and how much of its communication is exposed."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from lmsweep.orchestrator.features.ddp.checked.compared_step import ComparedStep
from lmsweep.orchestrator.features.ddp.checked.coordinator import Team
from lmsweep.orchestrator.features.ddp.checked.step_checks import verify
from lmsweep.orchestrator.features.ddp.collective_times import bandwidth_rows
from lmsweep.orchestrator.features.ddp.comm_trace import (
    FILE_NAME,
    Busy,
    Communication,
    device_seconds,
    merge_traces,
    trace_communication,
    trace_step,
)
from lmsweep.orchestrator.features.ddp.step_pairs import Pair, StepPairs, pair_rows
from lmsweep.orchestrator.features.ddp.step_report import report_rows, report_step
from lmsweep.orchestrator.features.ddp.timed_rank import RankMemory, TimedRank, take_series_of_ranks
from lmsweep.trials.bench.iterations import host_bound_flags
from lmsweep.trials.bench.varied_steps import token_rows
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.lengths.batches import batches
from lmsweep.trials.model.compiler import check_compiled
from lmsweep.trials.model.transformer.attention_support import check_attention
from lmsweep.trials.profiling.device_time import device_row
from lmsweep.trials.profiling.torch_trace import trace_file
from lmsweep.trials.results.measurement import Measurement, Yielded, one_number
from lmsweep.trials.results.outcome import Flag

ALL_REDUCE_WARMUP = 3
ALL_REDUCES = 10
"""Isolated all-reduces that are timed, after ALL_REDUCE_WARMUP untimed ones."""
TRACED_STEPS = 3
"""Steps of GPUs from which device time is taken; elsewhere one is traced."""


def measure(bench: Workbench) -> Iterator[Yielded]:
    """Check gradients and weights, then time pairs of steps; rank 0 yields. Raises RanksDisagreeError."""
    config = bench.config
    check_attention(config, bench.math_mode.operand_dtype, gradients=True)
    assert bench.rank is not None, "the workload runs in ranks"
    with bench.quiet():
        step = TimedRank(config, bench.math_mode)
        yield from Team(step, bench.rank).led(partial(lead, bench))
        bench.repeated_layers = step.training.repeated_layers


def checks(bench: Workbench) -> Iterator[Measurement]:
    """Check gradients and weights, and time nothing: what `lmsweep check` asks of the workload. Rank 0 yields."""
    assert bench.rank is not None, "the workload runs in ranks"
    yield from Team(ComparedStep(bench.config, bench.math_mode), bench.rank).led(partial(_verified, bench))


def _verified(bench: Workbench, team: Team[ComparedStep]) -> Iterator[Measurement]:
    team.all(ComparedStep.build)
    yield from verify(team, bench.config)


def lead(bench: Workbench, team: Team[TimedRank]) -> Iterator[Yielded]:
    """Run in rank 0 all that the workload measures, in this order, then yield the rows. Isolated all-reduces; the
    check, which also warms up; pairs of steps; memory; traces; a step whose operators are watched."""
    config = bench.config
    gradient_count = team.all(TimedRank.build)[0]
    with bench.account("warmup"):
        team.all(TimedRank.time_all_reduces, ALL_REDUCE_WARMUP)
    with bench.account("measured"):
        seconds_of_ranks = team.all(TimedRank.time_all_reduces, ALL_REDUCES)
        all_reduces = [max(of_one) for of_one in zip(*seconds_of_ranks, strict=True)]  # on the slowest rank
    pairs = StepPairs(team)

    def run() -> Pair:
        team.all(TimedRank.advance)
        return pairs.run()

    def begin() -> None:
        team.all(TimedRank.restart)

    with bench.account("compile" if config.compiles else "warmup"):
        checked = list(_unverified(run) if config.varies else verify(team, config))
    if config.compiles:
        check_compiled()
    series = take_series_of_ranks(bench, team, run, lambda pair: pair.synchronized.step, before_measuring=begin)
    with bench.account("measured"):
        # Memory is not measured in the pairs: a step without synchronization holds gradients beside their buckets.
        team.all(TimedRank.reset_peak_memory)
        begin()
        for _ in range(len(series.measured) if config.varies else 1):
            team.all(TimedRank.advance)
            team.all(TimedRank.step)
        memory = team.all(TimedRank.memory)
        steps = [team.all(trace_communication) for _ in range(TRACED_STEPS if config.device_type == "cuda" else 1)]
        merged = merge_traces(team.all(trace_step), one_host=config.nodes == 1)
        reports = team.all(report_step)  # last: compiled code runs eagerly from here on, since operators are watched

    yield from checked
    disagrees = any(Flag.DISAGREES in check.flags for check in checked)
    doubtful = (*series.flags, *((Flag.DISAGREES,) if disagrees else ()))
    if config.device_type == "cuda":
        worked = [seconds for ranks in steps if (seconds := device_seconds(ranks)) is not None]
        doubtful += host_bound_flags(worked, [pair.synchronized.step for pair in series.measured])
        yield device_row("step", "device_time", worked, "ranks ran different collectives")
    yield from pair_rows(
        config, bench.datasheet, series.warmup, series.measured, doubtful=doubtful, does_not_fit=pairs.does_not_fit
    )
    if config.varies:
        # The measured steps began at the first batch (`begin`), and all ranks draw from one sequence.
        drawn, of_step = batches(config), config.accumulate * config.world_size
        taken = [tuple(islice(drawn, of_step)) for _ in series.measured]
        yield from token_rows(taken, [pair.synchronized.step for pair in series.measured])
    yield from _communication(steps)
    yield from report_rows(reports)
    yield trace_file(FILE_NAME, merged)
    yield from _memory(memory, config.device_type)
    yield from _bandwidth(bench, gradient_count, all_reduces)


def _unverified(run: Callable[[], Pair]) -> Iterator[Measurement]:
    """Run one pair in place of the check, which would also compile; yield why gradients were not compared."""
    run()
    reason = "gradients are compared with one process where all batches have one shape; take lengths out for that"
    yield one_number("gradients", "relative_error", "1", None, reason)


def _communication(steps: Sequence[Sequence[Communication]]) -> Iterator[Measurement]:
    """Rows of each traced step, for the rank with the least time in collectives: it waited least for the others."""
    least = [min(ranks, key=lambda rank: rank.busy) for ranks in steps]
    counts = tuple(one.collectives for one in least)
    yield Measurement(phase="communication", metric="collectives", unit="1", samples=counts)
    parts: dict[str, Sequence[Busy]] = {"communication": least}
    parts |= {kind: [one.kinds[kind] for one in least if kind in one.kinds] for kind in least[0].kinds}
    for phase, busy in parts.items():
        yield Measurement(phase=phase, metric="busy_time", unit="s", samples=tuple(one.busy for one in busy))
        yield Measurement(phase=phase, metric="overlap_time", unit="s", samples=tuple(one.overlap for one in busy))


def _memory(memory: Sequence[RankMemory], device_type: str) -> Iterator[Measurement]:
    reason = f"PyTorch does not count what it allocates on device {device_type}"
    known = [one.peak_allocated for one in memory if one.peak_allocated is not None]
    yield one_number("step", "peak_allocated", "B", max(known, default=None), reason)
    hidden = "the optimizer keeps its state neither in `state` nor in an optimizer that it holds"
    for rank, one in enumerate(memory):
        yield one_number(f"rank{rank}", "peak_allocated", "B", one.peak_allocated, reason)
        yield one_number(f"rank{rank}", "optimizer_state", "B", one.optimizer_state, hidden)


def _bandwidth(bench: Workbench, gradient_count: int, seconds: Sequence[float]) -> Iterator[Measurement]:
    """Rows of the isolated all-reduces of as many elements as the gradients have."""
    size = gradient_count * bench.math_mode.parameter_dtype.itemsize
    yield Measurement(phase="gradients", metric="size", unit="B", samples=(size,))
    yield Measurement(phase="all_reduce", metric="time", unit="s", samples=tuple(seconds))
    yield from bandwidth_rows("all_reduce", "all_reduce", size, seconds, bench.config.world_size)
