"""The workload `ddp`: a data-parallel training step on several ranks, and how much of its communication is exposed."""

import math
import time
from collections.abc import Iterator, Sequence

from lmsweep.trials.analytic.collective_time import bus_factor
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.bench.iterations import take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.comm_trace import Communication
from lmsweep.trials.distributed.coordinator import Team
from lmsweep.trials.distributed.data_parallel_step import (
    DataParallelStep,
    RankMemory,
    is_own,
)
from lmsweep.trials.distributed.fully_sharded import check_sharding
from lmsweep.trials.distributed.orders import (
    Build,
    CheckGradients,
    CheckWeights,
    DigestWeights,
    EndWatch,
    ReadMemory,
    ReportStep,
    ResetPeakMemory,
    StartWatch,
    TimeAllReduce,
    TimeStep,
    TraceStep,
)
from lmsweep.trials.distributed.pair_rows import pair_rows
from lmsweep.trials.distributed.rank_traces import FILE_NAME, KeepTrace, merge_traces
from lmsweep.trials.distributed.report_rows import report_rows
from lmsweep.trials.distributed.step_pairs import StepPairs
from lmsweep.trials.distributed.tensor_parallel import check_tensor_parallel
from lmsweep.trials.distributed.wait_rows import wait_rows
from lmsweep.trials.model.attention_support import check_attention
from lmsweep.trials.model.compiler import check_compiled
from lmsweep.trials.model.optimizer import ADAMW
from lmsweep.trials.profiling.device_time import device_row, is_host_bound
from lmsweep.trials.profiling.torch_trace import trace_file
from lmsweep.trials.results.measurement import Measurement, Yielded
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import FLOAT8_PRECISIONS, HIDDEN_LOSSES, Precision, TrialConfig, UnsupportedError

ALL_REDUCE_WARMUP = 3
ALL_REDUCES = 10
"""Isolated all-reduces that are timed, after ALL_REDUCE_WARMUP untimed ones."""

TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 2e-2, "fp16": 2e-2, "bf16_pure": 5e-2}
"""Largest relative error of a gradient that the order of additions and atomics can explain. Without synchronization,
or with a sum in place of the mean, the error is of the order of 1.
"""

WEIGHTS_TOLERANCE: dict[Precision, float] = {"fp32": 1e-2, "tf32": 0.1, "bf16": 0.1, "fp16": 0.1, "bf16_pure": 0.5}
"""The same for what two steps add to a weight. AdamW divides each gradient by its own size, so that an error in a small
gradient counts as much as one in a large gradient.
"""


class RanksDisagreeError(Exception):
    """The ranks have wrong gradients or different weights, so the trial is not worth timing."""


def measure(bench: Workbench) -> Iterator[Yielded]:
    """Time isolated all-reduces, check gradients and weights, then time `measure_steps` pairs of steps; seconds.

    `warmup_steps` pairs come first, and one traced step last. Runs in every rank; only rank 0 yields. A wrapper or an
    optimizer of the user's that computes something else is timed all the same, and flagged `disagrees`. Raises
    UnsupportedError if the configuration leaves nothing to synchronize or this host cannot run it, and
    RanksDisagreeError.
    """
    config = bench.config
    check_configuration(config)
    check_attention(config, bench.math_mode.operand_dtype, gradients=True)
    assert bench.rank is not None, "the workload runs in ranks"
    with bench.quiet():
        team = Team(DataParallelStep(config, bench.math_mode))
        if bench.rank.index > 0:
            team.follow()
            return
        yield from lead(bench, team)
        team.dismiss()


def check_configuration(config: TrialConfig) -> None:
    """Raise UnsupportedError if a field of the configuration is missing or would have no effect."""
    if config.ddp == "none":
        raise UnsupportedError("ddp: none synchronizes nothing; choose naive, flat, bucketed, ...")
    if config.precision in FLOAT8_PRECISIONS:
        raise UnsupportedError(f"precision {config.precision} is measured in one process, not in ranks of ddp")
    if config.bucket_bytes is not None and (config.ddp in ("naive", "flat", "overlap") or config.fully_shards):
        raise UnsupportedError(f"bucket_bytes has no effect with ddp {config.ddp}, which has no buckets")
    if config.mode not in ("forward_backward", "train_step"):
        raise UnsupportedError(f"mode {config.mode} computes no gradients; ddp needs forward_backward or train_step")
    check_sharding(config)
    check_tensor_parallel(config)
    if config.accumulate > 1 and is_own(config):
        raise UnsupportedError("nothing is known of your own code that holds back its communication; use accumulate: 1")
    if (config.fully_shards or config.tp > 1) and config.optimizer not in ADAMW:
        raise UnsupportedError(
            f"divided weights are measured with AdamW; with {config.optimizer} choose bucketed or another"
        )
    if config.fully_shards and config.loss in HIDDEN_LOSSES:
        raise UnsupportedError(
            f"loss {config.loss} reads the weight of the head, which {config.ddp} has divided; use eager"
        )
    if config.ddp == "zero1" and config.mode != "train_step":
        raise UnsupportedError("ddp zero1 shards the optimizer's state; it needs mode train_step")
    if config.ddp == "zero1" and config.optimizer not in ADAMW:
        raise UnsupportedError(f"ddp zero1 shards AdamW's state, not that of {config.optimizer}")
    if config.ddp == "torch" and config.compile == "model" and (config.bucket_bytes or 2**20) < 2**20:
        raise UnsupportedError(
            "torch.compile splits the model at the boundaries of buckets; bucket_bytes must be 1 MiB or more"
        )
    if config.records_cuda_graphs:
        raise UnsupportedError(f"compile_mode {config.compile_mode} keeps gradients in the memory pool of CUDA graphs")


def lead(bench: Workbench, team: Team[DataParallelStep]) -> Iterator[Yielded]:
    """Rank 0's part: order every measurement, and yield the results."""
    config = bench.config
    gradients = team.all(Build())[0]
    with bench.account("warmup"):
        for _ in range(ALL_REDUCE_WARMUP):
            team.all(TimeAllReduce())
    with bench.account("measured"):
        all_reduces = [max(team.all(TimeAllReduce())) for _ in range(ALL_REDUCES)]
    with bench.account("compile" if config.compiles else "warmup"):
        checks = list(_checks_of_own(team, config) if is_own(config) else _checks(team, config))
    if config.compiles:
        check_compiled()
    team.all(StartWatch())
    pairs = StepPairs(team)
    series = take_series(bench, pairs.run, lambda pair: pair.synchronized.step)
    now = time.monotonic()
    doubtful = team.all(EndWatch(since_ago=now - series.since, until_ago=now - series.until))
    with bench.account("measured"):
        # Not during the pairs: a step without synchronization holds both gradients and their buckets in memory.
        team.all(ResetPeakMemory())
        team.all(TimeStep())
        memory = team.all(ReadMemory())
        traces = team.all(TraceStep())
        merged = merge_traces(team.all(KeepTrace()), one_host=config.nodes == 1)
        reports = team.all(ReportStep())  # last: compiled code runs eagerly from here on, since operators are watched

    yield from checks
    own_flags = (Flag.DISAGREES,) if any(Flag.DISAGREES in check.flags for check in checks) else ()
    gpu_flags = tuple(dict.fromkeys(flag for of_rank in doubtful for flag in of_rank))
    if config.device_type == "cuda":
        worked = [min(trace.worked for trace in traces)]
        limit = [Flag.HOST_BOUND] * is_host_bound(worked, [pair.synchronized.step for pair in series.measured])
        gpu_flags = (*limit, *gpu_flags)
        yield device_row("step", "device_time", worked)
    met = bench.fingerprint("ddp")
    device = find_device(met.device_name, met.device_memory)
    yield from pair_rows(
        config,
        device,
        series.warmup,
        series.measured,
        doubtful=series.flags + own_flags + gpu_flags,
        misfit=pairs.misfit,
    )
    yield from _communication(traces)
    yield from _waits(traces, config)
    yield from report_rows(reports)
    yield trace_file(FILE_NAME, merged)
    yield from _memory(memory, config.device_type)
    yield from _bandwidth(bench, gradients, all_reduces)


def _rounds_as(config: TrialConfig) -> Precision:
    """The precision with whose errors the step is compared: weights gathered in bfloat16 are rounded to it."""
    return "bf16_pure" if config.gather == "bf16" else config.precision


def _allowed_error(config: TrialConfig) -> float:
    """The largest relative error of a gradient that rounding explains.

    Tensor parallelism in 16 bits rounds each rank's part of a layer's output before the parts are added. The errors of
    the layers add like independent numbers, and up to four layers stay within the tolerance.
    """
    rounded = TOLERANCE[_rounds_as(config)]
    if config.tp == 1 or config.precision in ("fp32", "tf32"):
        return rounded
    return rounded * math.sqrt(max(1.0, (config.num_layers or 1) / 4))


def _checks(team: Team[DataParallelStep], config: TrialConfig) -> Iterator[Measurement]:
    """Compare gradients with those of one process, and weights between ranks. Raises RanksDisagreeError."""
    errors = [found for found in team.all(CheckGradients()) if found is not None]
    error, allowed = max(errors), _allowed_error(config)
    wrong = [rank for rank, found in enumerate(errors) if not found <= allowed]
    if wrong:
        raise RanksDisagreeError(
            f"gradients{_of_ranks(wrong, config)} are off by {error:.2g} of their norm from those of a single process "
            f"on the whole batch; {allowed:g} is allowed"
        )
    team.all(TimeStep())
    if len(set(team.all(DigestWeights()))) > 1:
        raise RanksDisagreeError("the ranks have different weights after one synchronized step")
    yield Measurement(phase="gradients", metric="relative_error", unit="1", samples=(error,))


def _of_ranks(wrong: Sequence[int], config: TrialConfig) -> str:
    """Return ` of ranks 2, 3 (replica 1)`, or nothing if all ranks are meant. Only hsdp has replicas."""
    if len(wrong) == config.world_size:
        return ""
    ranks = f" of rank{'s' * (len(wrong) > 1)} {', '.join(map(str, wrong))}"
    replicas = sorted({rank // (config.shard_ranks * config.tp) for rank in wrong})
    if config.ddp != "hsdp":
        return ranks
    return f"{ranks} (replica{'s' * (len(replicas) > 1)} {', '.join(map(str, replicas))})"


def _checks_of_own(team: Team[DataParallelStep], config: TrialConfig) -> Iterator[Measurement]:
    """Compare gradients, and weights after two steps, with those of one process, and flag what disagrees."""

    def row(phase: str, metric: str, error: float, allowed: float) -> Measurement:
        flags = () if error <= allowed else (Flag.DISAGREES,)
        return Measurement(phase=phase, metric=metric, unit="1", samples=(error,), flags=flags)

    found = [error for error in team.all(CheckGradients()) if error is not None]
    if found:
        yield row("gradients", "relative_error", max(found), _allowed_error(config))
    else:
        why = "each rank has only a shard of the gradients; error.weights compares what they lead to"
        yield Measurement(phase="gradients", metric="relative_error", unit="1", samples=None, reason=why)
    if config.mode == "train_step":
        yield row("error", "weights", max(team.all(CheckWeights())), WEIGHTS_TOLERANCE[_rounds_as(config)])


def _communication(traces: Sequence[Communication]) -> Iterator[Measurement]:
    """Communication of the rank that spent the least time in it: the others also waited for that rank."""
    last = min(traces, key=lambda trace: trace.busy)
    yield Measurement(phase="communication", metric="collectives", unit="1", samples=(last.collectives,))
    yield Measurement(phase="communication", metric="busy_time", unit="s", samples=(last.busy,))
    yield Measurement(phase="communication", metric="overlap_time", unit="s", samples=(last.overlap,))
    for kind, found in last.kinds.items():
        yield Measurement(phase=kind, metric="busy_time", unit="s", samples=(found.busy,))
        yield Measurement(phase=kind, metric="overlap_time", unit="s", samples=(found.overlap,))


def _waits(traces: Sequence[Communication], config: TrialConfig) -> Iterator[Yielded]:
    """What the computation of each rank waits for, block by block; known of fully_shard only, which names ranges."""
    if not config.fully_shards:
        return
    if not all(trace.needed for trace in traces):
        reason = "the trace has no collectives in ranges of fully_shard"
        yield Measurement(phase="all_gather", metric="late_time", unit="s", samples=None, reason=reason)
        return
    same_ranks = config.shard_ranks == config.world_size and config.nodes == 1 and not config.reshard.isdecimal()
    yield from wait_rows([trace.needed for trace in traces], same_ranks=same_ranks)


def _memory(memory: Sequence[RankMemory], device_type: str) -> Iterator[Measurement]:
    """Bytes of each rank, and of the rank that needs most."""
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
    """Isolated all-reduce of this many gradients: time, algorithm bandwidth and bus bandwidth.

    Algorithm bandwidth is bytes of gradients / time; bus bandwidth is that times 2 (n - 1) / n for n ranks.
    """
    config = bench.config
    size = gradients * bench.math_mode.parameter_dtype.itemsize
    factor = bus_factor("all_reduce", config.world_size)
    alone = None if factor else "one rank sends nothing"
    yield Measurement(phase="gradients", metric="size", unit="B", samples=(size,))
    yield Measurement(phase="all_reduce", metric="time", unit="s", samples=tuple(seconds))
    for metric, scale in (("algorithm_bandwidth", 1.0), ("bus_bandwidth", factor)):
        samples = tuple(scale * size / one for one in seconds) if factor else None
        yield Measurement(phase="all_reduce", metric=metric, unit="B/s", samples=samples, reason=alone)
