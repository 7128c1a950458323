"""A machine that others use: what they took is distinguished from what the trial used, and `run` says who they are."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lmsweep.orchestrator.running.before_run import other_runs, warning_about
from lmsweep.orchestrator.running.progress.trial_words import outcome
from lmsweep.trials.bench.iterations import take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.cpu_time import CpuTime, is_host_busy, read_cpu_time
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Iteration
from tests.support.command import start, write_sweep
from tests.support.made_up_results import Attempts, config
from tests.support.waiting import wait_until

SPIN = "print(flush=True)\nwhile True: pass"
CONFIG = TrialConfig(d_model=16, warmup_steps=0, measure_steps=5)


@contextmanager
def spinning(count: int) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-c", SPIN]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        for one in processes:
            assert one.stdout and one.stdout.readline()
        yield processes
    finally:
        for one in processes:
            one.kill()
            one.wait()


def flags_of(run_seconds: float) -> tuple[Flag, ...]:
    """Of a trial on the CPU whose iterations last so long, and use no CPU time."""

    def run() -> Iteration:
        time.sleep(run_seconds)
        return Iteration(phases=(run_seconds,), step=run_seconds, enqueue=None)

    return take_series(Workbench(CONFIG, requested_at=time.monotonic()), run, lambda one: one.step).flags


NOTHING = CpuTime(at=0.0, cores=4, used=0.0, stolen=0.0, trial=0.0)


@pytest.mark.parametrize(
    ("device", "after", "is_busy"),
    [
        ("cpu", {"used": 39.0, "trial": 38.0}, False),
        ("cpu", {"used": 1.9}, False),  # Ray and the system are never quite idle
        ("cpu", {"used": 2.2}, True),
        ("cpu", {"used": 40.0, "trial": 25.0}, True),
        ("cpu", {"used": 40.0, "trial": 40.0, "stolen": 1.9}, False),
        ("cpu", {"used": 20.0, "trial": 20.0, "stolen": 2.0}, True),  # a host keeps time from its guest
        ("cuda", {"used": 30.0, "trial": 10.0}, False),  # to launch work takes two cores, which were left
        ("cuda", {"used": 40.0, "trial": 10.0}, True),
        ("cuda", {"cores": 1, "used": 10.0, "trial": 5.0}, True),
    ],
)
def test_what_others_took_of_the_cores_is_what_was_used_and_is_not_our_own(device, after, is_busy):
    before = replace(NOTHING, cores=after.get("cores", 4))
    assert is_host_busy(before, replace(NOTHING, at=10.0, **after), device) == is_busy


def test_a_few_ticks_of_the_kernel_s_clock_say_nothing():
    short = replace(NOTHING, at=0.01, used=0.04)
    assert not is_host_busy(NOTHING, short, "cpu")
    assert not is_host_busy(NOTHING, None, "cpu") and not is_host_busy(None, NOTHING, "cpu")


def test_what_this_process_and_its_children_use_is_their_own():
    with spinning(2):
        before = read_cpu_time()
        # However little a busy machine leaves them, they have it at last, and nobody else is charged with it.
        wait_until(lambda: read_cpu_time().trial - before.trial > 0.2)
        after = read_cpu_time()
    assert before and after and after.cores == len(usable_cores())
    assert after.trial - before.trial <= after.used - before.used + after.cores * 0.02
    later = read_cpu_time()
    assert later and later.trial >= after.trial, "what a child has used is not forgotten when it ends"


def test_a_trial_beside_which_others_compute_is_flagged():
    with spinning(len(usable_cores())), ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as child:
        assert Flag.BUSY_HOST in child.submit(flags_of, 0.1).result(timeout=60)


def test_run_says_of_each_trial_that_its_host_was_busy(tmp_path):
    rows = Attempts(tmp_path / "store").ok(config(), {"step.time": (1.0, 1.1, 1.2)}, flags=(Flag.BUSY_HOST,))
    assert outcome(rows) == "1.1 s per step, on a busy machine"
    assert outcome([replace(row, flags=()) for row in rows]) == "1.1 s per step"


def test_another_run_on_this_machine_is_seen_while_it_lasts(tmp_path):
    assert not {os.getpid(), os.getppid()} & {*other_runs()}
    run = start("run", write_sweep(tmp_path), "--store", tmp_path / "store")
    try:
        wait_until(lambda: run.pid in other_runs())
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
    assert run.pid not in other_runs()
    assert "(process 12) is active on this machine" in warning_about([12])
    assert "(processes 12, 13) are" in warning_about([12, 13])
