"""Data-parallel training on two CPU ranks: what each way sends, and what becomes of ranks that fail."""

import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from statistics import median
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from lmsweep.orchestrator.features.ddp.checked.coordinator import Team
from lmsweep.orchestrator.features.ddp.checked.step_checks import RanksDisagreeError
from lmsweep.orchestrator.features.ddp.comm_trace import SETTLE_SECONDS, Communication, device_seconds, on_cpu, on_gpu
from lmsweep.orchestrator.features.ddp.rank_steps import lead
from lmsweep.orchestrator.features.ddp.step_pairs import StepPairs, exposed_flags, local_step
from lmsweep.orchestrator.features.ddp.timed_rank import TimedRank
from lmsweep.trials.bench.run_trial import run_trial, status_of
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep
from lmsweep.trials.distributed.parallel.gradient_sync import SYNCHRONIZERS, Naive, fill_buckets
from lmsweep.trials.distributed.ranks.ranks import Emit, Rank, RankDiedError, parts_of, run_ranks
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.machine.gpu.nvml_sampler import Reading
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.results.record import Attempt, Record, Row, records_of
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from tests.features.ddp.test_sharding import BYTES, built, complaint_about, in_ranks, led_by_rank_0
from tests.features.ddp.test_sharding import SMALL as SHARDED
from tests.support.clean_process import in_clean_process
from tests.support.waiting import wait_until

# hsdp needs more ranks than two: test_sharding.py
VARIANTS = tuple(word for word in DDP_VARIANTS if word not in ("none", "hsdp"))
SMALL = replace(SHARDED, ddp="naive", measure_steps=4)
PARAMETERS = 9 * 2 + 3
"""Matrices and norms of its two layers, both embeddings, the last norm."""
BUCKET_BYTES = 20_000
QUICK = ("bucketed", "zero1", "fsdp")
ENDLESS = replace(SMALL, measure_steps=10**7)


def with_buckets(kind: str) -> TrialConfig:
    return replace(SMALL, ddp=kind, bucket_bytes=BUCKET_BYTES if kind in ("bucketed", "torch", "zero1") else None)


@pytest.fixture(scope="module")
def measured(runner, environment) -> Callable[[str], dict[str, Record]]:
    """The rows of a trial of a variant, by phase.metric; it runs when a test asks for it first."""
    return cache(lambda kind: by_name(run(runner, environment, with_buckets(kind))))


def trial_of(config: TrialConfig) -> Trial:
    return Trial(config=config, workloads=("ddp",), sweep="test")


def run(runner: IsolatedRunner, environment: Fingerprint, config: TrialConfig) -> list[Record]:
    return records_of(runner.run(trial_of(config), fallback=environment))


def begun() -> Attempt:
    return Attempt.begin(trial_of(SMALL))


def by_name(rows: list[Record]) -> dict[str, Record]:
    assert {row.status for row in rows} == {Status.OK}, rows[0].error
    return {f"{row.phase}.{row.metric}": row for row in rows}


def value(row: Record) -> float:
    assert row.samples, row.reason
    return median(row.samples)


def processes() -> dict[psutil.Process, int]:
    """The servers of trials that this process has: 1; their children: 2; ranks, also those that it forks itself: 3."""
    found = {}
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if one.status() != psutil.STATUS_ZOMBIE:
                if "lmsweep.trials.isolation.server" in one.cmdline():
                    found[one] = [parent.pid for parent in one.parents()].index(os.getpid()) + 1
                elif one.cmdline() == psutil.Process().cmdline():
                    found[one] = 3
    return found


def no_process_left() -> bool:
    """All have gone but the servers and the spare child that each has for the next trial."""

    def only_servers() -> bool:
        depths = Counter(processes().values())
        return not depths[3] and depths[2] <= depths[1]

    wait_until(only_servers, seconds=5)
    return True


def ranks() -> list[psutil.Process]:
    return [one for one, depth in processes().items() if depth == 3]


def signal_later(
    sign: int, of: Callable[[psutil.Process], psutil.Process | None], *, begun: int = 2, seconds: float = 1.5
) -> threading.Thread:
    """Signals the last rank, or the child that started it, so long after so many have begun."""

    def send() -> None:
        wait_until(lambda: len(ranks()) >= begun)
        time.sleep(seconds)
        process = of(ranks()[begun - 1])
        assert process
        process.send_signal(sign)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


# What begins when


def collectives_of_a_step(parallel: TimedRank) -> tuple[int, int, int]:
    """How many there are, and how many begin in backward; see `trace_communication`. Then those of a local step."""
    parallel.step(synchronized=True)  # in its first backward DistributedDataParallel has other buckets
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for phase in parallel.phases():
            with record_function(phase.name):
                phase.run()
        time.sleep(SETTLE_SECONDS)
    events = trace.profiler.kineto_results.events()
    (backward,) = (event for event in events if event.name() == "backward")
    begun = [event.start_ns() for event in events if event.name().startswith("c10d::")]
    with parallel.local(), profile(activities=[ProfilerActivity.CPU]) as alone:
        parallel.run()
    in_local = sum(event.name().startswith("c10d::") for event in alone.profiler.kineto_results.events())
    return on_cpu(events).collectives, sum(start < backward.end_ns() for start in begun), in_local


def collectives(bench: Workbench, config: TrialConfig) -> list[tuple[int, int, int]]:
    return [collectives_of_a_step(built(bench, with_buckets(kind))) for kind in VARIANTS]


def buckets_of(size: int) -> int:
    parameters = list(TrainingStep(SMALL, set_math_mode("fp32", "cpu")).model.parameters())
    return len(fill_buckets(parameters[::-1], size))


def test_each_variant_communicates_in_its_own_way():
    buckets = buckets_of(BUCKET_BYTES)
    assert 2 < buckets < PARAMETERS - 2 and buckets_of(10**9) == 1
    *counts, in_local = zip(*in_ranks(collectives, SMALL), strict=True)
    assert {*in_local} == {0}
    found = dict(zip(VARIANTS, zip(*counts, strict=True), strict=True))
    of_torch, begun = found.pop("torch")  # which fills its own buckets
    assert 2 < of_torch < PARAMETERS - 2 and begun >= 1
    assert found == {
        "naive": (PARAMETERS, 0),
        "flat": (1, 0),
        "overlap": (PARAMETERS, PARAMETERS),
        "bucketed": (buckets, buckets),
        "zero1": (buckets + 2, buckets),  # it ends with a broadcast of each rank's weights
        "zero2": (6, 6),  # three gathers in forward, three scatters
        "fsdp": (8, 8),  # and two gathers in backward, which keeps those outside of the blocks
    }


@pytest.mark.slow
def test_a_sharded_optimizer_keeps_each_part_of_its_state_once(measured):
    whole = [value(measured("bucketed")[f"rank{rank}.optimizer_state"]) for rank in (0, 1)]
    shares = [value(measured("zero1")[f"rank{rank}.optimizer_state"]) for rank in (0, 1)]
    assert whole[0] == whole[1] == sum(shares)
    assert min(shares) > 0.4 * whole[0]


@pytest.mark.parametrize(
    "kind", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in VARIANTS]
)
def test_a_trial_reports_what_the_step_and_its_communication_took(measured, environment, kind):
    rows = measured(kind)
    assert value(rows["gradients.relative_error"]) < 1e-5
    assert {row.fingerprint.collective_library for row in rows.values()} == {"gloo"}
    assert {row.environment_id for row in rows.values()} == {environment_id(environment)}, "each rank has one core"
    timed = [rows[f"{name}time"] for name in ("step.", "local_step.", "communication.exposed_")]
    step, local, exposed = (row.samples or () for row in timed)
    for row in (*timed, rows["local_step.skew"]):
        assert (len(row.samples or ()), len(row.warmup_samples or ())) == (4, 1)
    assert exposed == tuple(mine - other for mine, other in zip(step, local, strict=True))
    by_rank = zip(*(rows[f"rank{rank}.local_step_time"].samples or () for rank in (0, 1)), strict=True)
    assert local == tuple(map(max, by_rank))
    phases = [rows[f"{name}.time"].samples or () for name in ("forward", "backward", "synchronization", "optimizer")]
    for whole, *parts in zip(step, *phases, strict=True):
        # Each is of its own slowest rank, so that they may add up to more, but to no more than both ranks' steps.
        assert max(parts) <= whole * 1.001 <= sum(parts) * 1.002 <= 2 * whole * 1.003
    assert value(rows["gradients.size"]) == BYTES
    expected = [BYTES / seconds for seconds in rows["all_reduce.time"].samples or ()]
    assert list(rows["all_reduce.bus_bandwidth"].samples or ()) == pytest.approx(expected)
    peak = rows["step.peak_allocated"]
    assert peak.samples is None and "does not count" in (peak.reason or "")


def traced(what: str, start: int, duration: int, device: DeviceType = DeviceType.CUDA, annotation: bool = False) -> Any:
    """An event as the profiler has them."""
    return SimpleNamespace(
        name=lambda: what, start_ns=lambda: start, duration_ns=lambda: duration, device_type=lambda: device,
        is_user_annotation=lambda: annotation, device_resource_id=lambda: 7,
    )  # fmt: skip


def test_overlap_is_the_time_in_which_a_gpu_both_computes_and_communicates():
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    found = on_gpu(
        [
            traced("gemm", 0, 100),
            traced(reduce, 50, 100),  # 50..150, 50 beside the product
            traced(reduce, 140, 60),  # 140..200, together 50..200
            traced("gemm", 190, 20),
            traced("nccl:all_reduce", 0, 1000, annotation=True),
            traced("ncclAllReduce", 0, 1000, device=DeviceType.CPU),
        ]
    )
    assert (found.collectives, round(found.busy * 1e9), round(found.overlap * 1e9)) == (2, 150, 60)
    assert device_seconds([found]) == pytest.approx(210e-9)


def test_a_wait_for_a_slower_rank_is_no_device_time():
    """A busy host lets ranks wait in turn: two runs of the same steps found 18 and 61 % less device time."""
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

    def rank(*starts: int) -> Communication:
        """Two products of 100, each before an all-reduce that ends when both ranks have been in it for 50."""
        products = [traced("gemm", start, 100) for start in starts]
        ends = zip(starts, (450, 850), strict=True)
        return on_gpu([*products, *(traced(reduce, start + 100, end - start - 100) for start, end in ends)])

    one, other = rank(0, 700), rank(300, 450)  # one waits in the first all-reduce, the other in the second
    assert device_seconds([one, other]) == pytest.approx(300e-9)
    assert (one.busy, other.busy) == (pytest.approx(400e-9), pytest.approx(350e-9)), "busy holds the waits"
    assert device_seconds([one, on_gpu([traced("gemm", 0, 100)])]) is None, "their collectives differ"


def test_a_difference_that_may_be_nothing_says_so():
    around_zero = [1e-3, -2e-3, 3e-3, -1e-3, 2e-3, 1e-3, -3e-3, 2e-3, 1e-3, -1e-3]
    assert exposed_flags(around_zero) == (Flag.NOT_RESOLVED,)
    assert exposed_flags([-one * 1e-3 for one in range(5, 15)]) == (Flag.NOT_RESOLVED,)
    assert exposed_flags([one * 1e-3 for one in (8, 12, 5, 14, 9, 6, 13, 7, 11, 10)]) == ()


DELAY = 0.06


def pairs_with_a_slow_rank(bench: Workbench, config: TrialConfig) -> Any:
    assert bench.rank
    parallel = built(bench, SMALL, ddp="flat")
    if bench.rank.index:
        forward = parallel.training.forward
        parallel.training.forward = lambda index=0: (time.sleep(DELAY), forward(index))  # type: ignore[method-assign, assignment, func-returns-value]

    def steps(team: Team) -> list[Any]:
        pairs = StepPairs(team)
        return [[pairs.run() for _ in range(4)], team.all(TimedRank.step), team.all(local_step)]

    return led_by_rank_0(parallel, bench.rank, steps)


@pytest.mark.slow
def test_a_slow_rank_shows_as_skew_and_the_others_wait_for_it():
    pairs, together, alone = in_ranks(pairs_with_a_slow_rank, SMALL)
    for pair in pairs:
        fast, slow = pair.local_by_rank
        assert slow - fast > 0.7 * DELAY
    assert min(iteration.step for iteration in together) > 0.9 * DELAY, "both end when the slow one does"
    assert alone[0].step < 0.5 * DELAY
    exposed = median(pair.synchronized.step - max(pair.local_by_rank) for pair in pairs)
    assert exposed < 0.5 * DELAY, "waiting for a slow rank is no communication"


# Ranks that disagree


class Drifting(TimedRank):
    def step(self, synchronized: bool = True) -> Any:
        iteration = super().step(synchronized)
        with torch.no_grad():
            self.training.model.head.weight[0, 0] += torch.distributed.get_rank()
        return iteration


def words_of_drifting_ranks(bench: Workbench, config: TrialConfig) -> str:
    return complaint_about(Drifting(SMALL, bench.math_mode), bench)


class Forgetful(Naive):
    """Never sends the last gradient."""

    def gradients(self) -> list[torch.Tensor]:
        return super().gradients()[:-1]


def rows_with_a_forgetful_rank(environment: Fingerprint) -> list[Row]:
    DataParallelStep.synchronizers = {**SYNCHRONIZERS, "naive": Forgetful}
    rows: list[Row] = []
    assert not run_trial(begun(), environment, rows.extend, requested_at=time.monotonic())
    return rows


def test_a_trial_whose_gradients_are_not_all_sent_is_an_error(environment):
    (row,) = in_clean_process(rows_with_a_forgetful_rank, environment)
    assert isinstance(row, Record) and row.status == Status.ERROR
    last = (row.error or "").strip().splitlines()[-1]
    assert "RanksDisagreeError: gradients are off by" in last and "0.0001 is allowed" in last
    assert no_process_left()


def test_ranks_whose_weights_drift_apart_are_an_error():
    found = in_ranks(words_of_drifting_ranks, SMALL)
    assert "the ranks have different weights" in found
    assert status_of(RanksDisagreeError(found)) == Status.ERROR


# Ranks in doubt


class Crowded(TimedRank):
    """Finds a foreign process on the GPU of rank 1."""

    def watch(self) -> None:
        super().watch()
        self.gpu.reason = None
        processes = 1 + torch.distributed.get_rank()
        unknown = dict.fromkeys(("sm_clock", "memory_clock", "power", "temperature", "energy", "event_reasons"))
        self.gpu.readings.append(Reading(at=time.monotonic(), processes=processes, **unknown))

    def end_watch(self, *, since_ago: float, until_ago: float) -> tuple[Flag, ...]:
        return super().end_watch(since_ago=time.monotonic(), until_ago=until_ago)


def flags_of_a_crowded_step(bench: Workbench, config: TrialConfig) -> Any:
    def flags(team: Team) -> list[tuple[Flag, ...]]:
        return [row.flags for row in lead(bench, team) if (row.phase, row.metric) == ("step", "time")]

    return led_by_rank_0(Crowded(SMALL, bench.math_mode), bench.rank, flags)


@pytest.mark.slow
def test_a_foreign_process_on_any_ranks_gpu_is_a_doubt_of_the_step(measured):
    (flags,) = in_ranks(flags_of_a_crowded_step, SMALL)
    assert Flag.SHARED_GPU in flags and Flag.SHARED_GPU not in measured("bucketed")["step.time"].flags


# Ranks that die or hang


def test_a_rank_that_hangs_makes_the_trial_time_out_and_tell_where(runner, environment):
    thread = signal_later(signal.SIGSTOP, lambda rank: rank)
    rows = run(runner, environment, replace(ENDLESS, timeout_seconds=5.0))
    thread.join()
    assert [row.status for row in rows] == [Status.TIMEOUT]
    assert re.search("ddp/checked/coordinator.py|data_parallel_step.py", rows[0].error or "")
    assert no_process_left()


@pytest.mark.slow
def test_a_rank_that_never_starts_is_a_timeout_and_the_next_trial_runs(runner, environment):
    thread = signal_later(signal.SIGSTOP, lambda rank: rank, begun=1, seconds=0)
    rows = run(runner, environment, replace(SMALL, timeout_seconds=8.0))
    thread.join()
    assert [row.status for row in rows] == [Status.TIMEOUT]
    assert no_process_left()
    assert by_name(run(runner, environment, SMALL))


def test_ranks_die_with_the_process_that_started_them(runner, environment):
    thread = signal_later(signal.SIGKILL, psutil.Process.parent)
    rows = run(runner, environment, ENDLESS)
    thread.join()
    assert [row.status for row in rows] == [Status.LOST]
    assert no_process_left()


def fail_in_rank_1(environment: Fingerprint, rank: Rank, emit: Emit) -> bool:
    if rank.index == 0:
        time.sleep(600)
    emit([begun().failure("ddp", Status.OOM, "no memory in rank 1", environment)])
    return False


def test_one_rank_that_fails_ends_the_others(environment):
    began = time.monotonic()
    (row,) = run_ranks(parts_of(SMALL)[0], partial(fail_in_rank_1, environment), cores=(0, 1), start="fork")
    assert (row.status, row.error) == (Status.OOM, "no memory in rank 1")
    assert time.monotonic() - began < 10
    assert no_process_left()


def die_after_closing(environment: Fingerprint, die: Callable[[], object], rank: Rank, emit: Emit) -> bool:
    """Rank 1 closes its connection to rank 0 and then dies; rank 0 fails because of it, before the death."""
    assert rank.folder is not None
    meeting = str(rank.folder / "meeting")
    if rank.index == 1:
        while True:
            with suppress(FileNotFoundError, ConnectionRefusedError), socket.socket(socket.AF_UNIX) as connection:
                connection.connect(meeting)
                break
            time.sleep(0.01)
        time.sleep(0.05)
        die()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(meeting)
        listener.listen()
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1) == b""
    emit([begun().failure("ddp", Status.ERROR, "connection closed by rank 1", environment)])
    return False


@pytest.mark.parametrize(
    ("die", "words"),
    [(partial(os._exit, 3), "exited with code 3"), (partial(signal.raise_signal, signal.SIGKILL), "ended by SIGKILL")],
    ids=["exit", "kill"],
)
def test_what_follows_from_a_death_does_not_hide_it(environment, die: Callable[[], object], words: str):
    with pytest.raises(RankDiedError, match=f"rank 1 of 2 .*{words}"):
        run_ranks(parts_of(SMALL)[0], partial(die_after_closing, environment, die), cores=(0, 1), start="fork")
