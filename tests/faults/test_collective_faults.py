"""Ranks that die inside a collective, or never begin: a status in time, no process left, the next trial unharmed."""

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import psutil
import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from lmsweep.orchestrator.features.ddp.checked.compared_step import ComparedStep
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.ranks.ranks import Emit, Rank, RankDiedError, parts_of, run_ranks
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.processes import await_end, has_ended
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial, TrialConfig
from tests.support.clean_process import in_clean_process
from tests.support.made_up_results import TINY
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

SMALL = replace(TINY, batch_size=2, measure_steps=2, world_size=2, ddp="fsdp", timeout_seconds=100.0)


def run(runner: IsolatedRunner, environment: Fingerprint, config: TrialConfig, workload: str = "ddp") -> list[Record]:
    rows = runner.run(Trial(config=config, workloads=(workload,), sweep="test"), fallback=environment)
    return [row for row in rows if isinstance(row, Record)]


class DiesIn(TorchDispatchMode):
    """Kills this process when it has started a collective of this name, which the other ranks then wait for."""

    def __init__(self, name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name = name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d" and self.name in func._schema.name:
            os.kill(os.getpid(), signal.SIGKILL)
        return func(*args, **(kwargs or {}))


def train_until_death(name: str, config: TrialConfig, rank: Rank, emit: Emit) -> bool:
    bench = Workbench(config, requested_at=time.monotonic(), rank=rank)
    parallel = ComparedStep(config, bench.math_mode)
    parallel.build()
    parallel.step(synchronized=True)
    if rank.index == 1:
        with DiesIn(name):
            parallel.step(synchronized=True)
    while True:
        parallel.step(synchronized=True)


def death_of_rank_1(name: str) -> str:
    body = partial(train_until_death, name, SMALL)
    with pytest.raises(RankDiedError) as found:
        run_ranks(parts_of(SMALL)[0], body, cores=tuple(usable_cores()[:2]), start="fork")
    assert not psutil.Process().children()
    return str(found.value)


@pytest.mark.parametrize("name", ["allgather", "reduce_scatter"])
def test_a_rank_that_is_killed_inside_a_collective_ends_the_others(name: str):
    began = time.monotonic()
    assert in_clean_process(death_of_rank_1, name) == "rank 1 of 2 was ended by SIGKILL"
    assert time.monotonic() - began < 60


def ranks() -> list[psutil.Process]:
    """What the children of this process's trial servers have forked."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, ValueError):
            if [parent.pid for parent in process.parents()].index(os.getpid()) == 2:
                found.append(process)
    return found


def stop_a_rank_at_birth() -> threading.Thread:
    """Stops a rank of the runner's child as soon as it has been forked, before it joins the group."""

    def stopped() -> bool:
        with suppress(psutil.NoSuchProcess, IndexError):
            ranks()[0].send_signal(signal.SIGSTOP)
            return True
        return False

    thread = threading.Thread(target=wait_until, args=(stopped,))
    thread.start()
    return thread


@pytest.mark.parametrize("workload", ["ddp", "collectives"])
def test_a_rank_that_never_starts_is_a_timeout_and_the_next_trial_runs(runner, environment, workload: str):
    config = SMALL if workload == "ddp" else TrialConfig(world_size=2, warmup_steps=0, measure_steps=1)
    thread = stop_a_rank_at_birth()
    began = time.monotonic()
    rows = run(runner, environment, replace(config, timeout_seconds=8.0), workload)
    thread.join()
    assert [row.status for row in rows] == [Status.TIMEOUT]
    assert time.monotonic() - began < 60
    await_end(ranks(), 5.0)  # a process takes a moment to end once it is killed
    assert all(has_ended(rank) for rank in ranks()), "no rank is left"
    assert {row.status for row in run(runner, environment, config, workload)} == {Status.OK}
