"""The signals by which schedulers announce the end of a job, and SIGQUIT, which Ctrl-\\ sends."""

import contextlib
import signal
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from lmsweep.orchestrator.interrupt import grace_period
from tests.support.command import start, started_by, wait_for_child, write_sweep

ANNOUNCING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)

pytestmark = pytest.mark.usefixtures("one_core")


@pytest.mark.slow
@pytest.mark.parametrize("number", ANNOUNCING)
def test_the_trial_that_runs_may_end_even_if_every_process_is_signalled_and_twice(
    tmp_path: Path, number: signal.Signals
):
    sweep = write_sweep(tmp_path, context_length=[128, 160, 192], measure_steps=200)
    process = start("run", sweep, "--store", tmp_path / "store", "--no-predict", "--grace", "1m")
    child = wait_for_child(process)
    time.sleep(1)  # the child must have come to its first line
    started = started_by(process)
    assert child in started
    for _ in range(2):
        for one in (psutil.Process(process.pid), *started):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number and f"ended by {number.name}" in err, out + err
    assert f"{number.name}: 1 trial may finish within 60 s" in out
    assert not psutil.wait_procs(started, timeout=10)[1], "it left processes running"
    kept = pd.read_parquet(tmp_path / "store" / "measurements")
    assert set(kept["status"]) == {"ok"} and 1 <= kept["trial_id"].nunique() <= 2


@pytest.mark.slow
def test_a_repeated_signal_ends_the_grace_period(tmp_path: Path):
    process = start(
        "run", write_sweep(tmp_path, context_length=[1024], batch_size=4, measure_steps=10_000),
        "--store", tmp_path / "store", "--no-predict", "--grace", "5m",
    )  # fmt: skip
    wait_for_child(process)
    started = started_by(process)
    process.send_signal(signal.SIGUSR1)
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(signal.SIGUSR1)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 138, out + err
    assert not psutil.wait_procs(started, timeout=10)[1], "it left processes running"


@pytest.mark.slow
@pytest.mark.parametrize("earlier", [None, signal.SIGTERM])
def test_sigquit_ends_a_run_at_once_with_the_stacks_of_its_threads(tmp_path: Path, earlier: signal.Signals | None):
    sweep = write_sweep(tmp_path, context_length=[512, 1024], batch_size=4, measure_steps=10_000)
    process = start("run", sweep, "--store", tmp_path / "store", "--no-predict", "--grace", "5m")
    wait_for_child(process)
    started = started_by(process)
    if earlier:
        process.send_signal(earlier)
        time.sleep(1)
    began = time.monotonic()
    for one in (psutil.Process(process.pid), *started):  # a terminal signals the whole group
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGQUIT)
    out, err = process.communicate(timeout=60)
    first = earlier or signal.SIGQUIT
    assert process.returncode == 128 + first, out + err
    assert time.monotonic() - began < 20
    assert "Current thread" in err and "tune_runner.py" in err, err
    assert f"ended by {first.name}; results of finished trials are in" in err and "Traceback" not in err
    assert not psutil.wait_procs(started, timeout=10)[1], "it left processes running"


def test_a_signal_that_is_ignored_as_under_nohup_stays_ignored_in_the_grace_period():
    begun: list[str] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with grace_period(60, begun.append):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert begun == []
