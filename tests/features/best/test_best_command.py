"""`lmsweep best` with real trials: what it measures is stored, and neither a kill nor a second run loses any of it."""

import os
import signal
import time
from pathlib import Path

import pytest

from lmsweep.analysis import load
from tests.support.command import (
    answer_here,
    interrupt,
    lmsweep,
    lmsweep_here,
    start,
    wait_for_child,
    write_sweep,
)

pytestmark = pytest.mark.usefixtures("one_core")

QUIET = {"OMP_NUM_THREADS": "1"}


def grid(folder: Path) -> Path:
    return write_sweep(folder, context_length=16, batch_size=[1, 2], optimizer=["adamw_fused", "adamw_loop"])


def attempts(store: Path) -> dict[str, int]:
    """The number of attempts at each measurement."""
    frame = load(str(store), pooled=False).drop_duplicates(["measurement_id", "attempt_id"])
    return frame["measurement_id"].value_counts().to_dict()


@pytest.mark.slow
def test_a_search_answers_and_a_run_continues_from_its_results(tmp_path):
    sweep, store = write_sweep(tmp_path, context_length=16, batch_size=[1, 2]), tmp_path / "results"
    done = lmsweep("best", sweep, "--store", store, "--no-predict", "--recipe", **QUIET)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 combinations. Searching the other 2 for the best by tokens/s")
    assert "may be as good" in done.stdout or "better than" in done.stdout
    assert all(words in done.stdout for words in (" for tokens/s", "lmsweep trial model=tiny", "import torch"))
    searched = attempts(store)
    assert set(load(str(store))["status"]) == {"ok"}
    assert max(searched.values()) > 1, "what leads was measured by another process"
    plan = lmsweep_here("plan", sweep, "--store", store, "--no-predict")
    assert f"2 trials, {2 - len(searched)} to run" in plan


@pytest.mark.slow
def test_a_killed_search_resumes(tmp_path):
    sweep, store = grid(tmp_path), tmp_path / "results"
    process = start("best", sweep, "--store", store, "--no-predict", **QUIET)
    wait_for_child(process)
    deadline = time.monotonic() + 120
    while not list((store / "measurements").rglob("*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = attempts(store)
    assert before
    done = lmsweep("best", sweep, "--store", store, "--no-predict", **QUIET)
    assert done.returncode == 0, done.stderr
    assert f"4 combinations: {len(before)} known from the store" in done.stdout
    assert all(attempts(store)[name] >= count for name, count in before.items())


@pytest.mark.slow
def test_ctrl_c_names_the_command_that_resumes(tmp_path):
    sweep, store = grid(tmp_path), tmp_path / "results"
    process = start("best", sweep, "--store", store, "--no-predict", "--goal", "tokens/s", "--recipe", **QUIET)
    wait_for_child(process)
    _, error = interrupt(process)
    assert process.returncode == 130
    assert f"To resume: lmsweep best {sweep} --store {store} --no-predict --recipe" in error


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, [], "(context_length varies), and none is best; choose one, such as --set context_length=16"),
        ({"context_length": [16]}, ["--goal", "J/Mtoken"], "--goal J/Mtoken needs the workload energy"),
        ({"context_length": [16]}, ["--where", "model=tiny"], "--where selects results of a store"),
        ({"context_length": [16]}, ["--set", "processes=2"], "--set processes: best decides"),
    ],
)
def test_best_refuses_a_sweep_that_cannot_answer_before_anything_runs(tmp_path, changes, options, message):
    sweep = write_sweep(tmp_path, **changes)
    done = answer_here("best", sweep, "--store", tmp_path / "results", *options)
    assert done.returncode == 2 and "predict" not in done.stderr
    assert message in done.stderr
    assert not list(tmp_path.rglob("*.parquet"))
