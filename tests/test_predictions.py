"""The processes that predict memory while a plan is made: they end with whoever asked them."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from orchestrator.predictions import Predictions
from orchestrator.sweep import load_sweep
from tests.command import lmsweep, start
from trials.cores import usable_cores

SIDE_BY_SIDE = min(2, len(usable_cores()))
"""Processes that predict at the same time, at least."""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def predicting(pid: int) -> list[psutil.Process]:
    """The processes at it, once all are."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = [one for one in psutil.Process(pid).children(recursive=True) if "trials.predict" in one.cmdline()]
        if len(found) > SIDE_BY_SIDE or (found and SIDE_BY_SIDE == 1):
            return found
        time.sleep(0.05)
    raise AssertionError("nothing predicts")


def test_predictions_that_nobody_wants_are_given_up_at_once():
    predictions = Predictions(load_sweep("local-gpu").trials)
    found = predicting(os.getpid())
    began = time.monotonic()
    predictions.close()
    assert time.monotonic() - began < 10
    assert not psutil.wait_procs(found, timeout=10)[1], "they go on"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_plan_that_is_ended_leaves_nothing_predicting(how: signal.Signals, tmp_path: Path):
    with start("plan", "local-gpu", "--for", "H100", "--store", tmp_path / "store") as process:
        found = predicting(process.pid)
        os.killpg(process.pid, how) if how == signal.SIGINT else process.kill()  # Ctrl-C reaches the whole group
        _, err = process.communicate(timeout=60)
    assert not psutil.wait_procs(found, timeout=10)[1], "they go on"
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    assert "Traceback" not in err


def test_a_sweep_that_nothing_here_can_run_ends(tmp_path: Path):
    done = lmsweep("run", "local-gpu", "--store", tmp_path / "store", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0 and "40 unsupported" in done.stdout, done.stdout + done.stderr
    assert "lmsweep run quick" in done.stdout, "no word of what to do instead"
    again = lmsweep("plan", "local-gpu", "--no-predict", "--store", tmp_path / "store", CUDA_VISIBLE_DEVICES="")
    assert "40 stored: this machine has no cuda device" in again.stdout, again.stdout
