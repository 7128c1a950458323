"""SIGTERM and SIGHUP, by which a scheduler, a container or a closing terminal ends the command."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from lmsweep.orchestrator.interrupt import grace_period
from lmsweep.trials.machine.scratch import scratch_folder
from tests.support.command import (
    COMMAND,
    PYTHONPATH,
    ROOT,
    interrupt,
    lmsweep,
    start,
    started_by,
    wait_for_child,
    write_noops,
    write_sweep,
)
from tests.support.waiting import assert_nothing_left, wait_until

pytestmark = pytest.mark.usefixtures("one_core")  # threads of a trial that wait for one another's core take minutes


def run_until_one_is_stored(folder: Path, *options: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A run of a short trial, which has ended, and a long one, which runs; and all that it has started."""
    sweep = write_sweep(folder, context_length=[16, 1024], batch_size=4, measure_steps=200, mode="forward")
    process = start("run", sweep, "--store", folder / "store", *options)
    wait_until(lambda: list(folder.glob("store/measurements/*.parquet")), 200)
    wait_for_child(process)
    return process, started_by(process)


def ended_by(number: signal.Signals, folder: Path) -> str:
    return f"ended by {number.name}; results of finished trials are in {folder / 'store'}"


def words_of(err: str) -> list[str]:
    """The lines on standard error, without that on other runs, which there may be on the machine of these tests."""
    return [line for line in err.strip().splitlines() if line and "active on this machine" not in line]


@pytest.mark.slow
@pytest.mark.parametrize("to_all", [False, True])
def test_every_trial_printed_before_sigterm_is_stored(tmp_path: Path, to_all: bool):
    process = start("run", write_noops(tmp_path, 40), "--store", tmp_path / "store")
    printed = [next(line for line in process.stdout if line.startswith("[")) for _ in range(3)]
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    printed += [line for line in out.splitlines() if line.startswith("[")]
    assert process.returncode == 143, out + err
    assert pd.read_parquet(tmp_path / "store" / "measurements")["trial_id"].nunique() == len(printed)


@pytest.mark.slow
def test_ctrl_c_twice_keeps_finished_trials_and_the_next_run_resumes(tmp_path: Path):
    process, started = run_until_one_is_stored(tmp_path, "--set", "mode=forward")
    out, err = interrupt(process, times=2)
    words = (tmp_path / "sweep.yaml", "--store", tmp_path / "store", "--set", "mode=forward")
    assert process.returncode == 130, out + err
    assert f"To resume: lmsweep run {' '.join(map(str, words))}\n" in err and "Traceback" not in err
    assert_nothing_left(started)
    plan = json.loads(lmsweep("plan", *words, "--format", "json").stdout)
    assert sorted(one["action"] for one in plan["trials"]) == ["run", "stored"]


@pytest.mark.slow
def test_ctrl_c_finishes_what_runs_and_begins_nothing_more(tmp_path: Path):
    sweep = write_sweep(tmp_path, context_length=[16, 24, 32], measure_steps=50)
    process = start("run", sweep, "--store", tmp_path / "s")
    wait_for_child(process)
    out, err = interrupt(process)
    assert process.returncode == 130 and "press it again to stop at once" in out, out + err
    assert "Supervisor" not in out and "[1/3]" in out and "[2/3]" not in out
    rows = pd.read_parquet(tmp_path / "s" / "measurements")
    assert rows["trial_id"].nunique() == 1 and set(rows["status"]) == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "grace", "repeated"),
    [
        (signal.SIGTERM, "0s", False),
        (signal.SIGHUP, "0s", False),
        (signal.SIGUSR1, "2s", False),
        (signal.SIGUSR1, "5m", True),
    ],
)
def test_a_trial_is_ended_at_once_or_after_the_grace_period_or_by_a_second_signal(
    tmp_path: Path, number: signal.Signals, grace: str, repeated: bool
):
    process, started = run_until_one_is_stored(tmp_path, *(() if grace == "0s" else ("--grace", grace)))
    begin = time.monotonic()
    # As scancel does: Ray's own processes get the signal too.
    (os.killpg if number == signal.SIGTERM else os.kill)(process.pid, number)
    if repeated:
        time.sleep(2)
        assert process.poll() is None
        process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, out + err
    (sentence,) = words_of(err)
    assert sentence.startswith(f"{ended_by(number, tmp_path)}. To resume: lmsweep run"), err
    assert_nothing_left(started)
    kept = pd.read_parquet(tmp_path / "store" / "measurements")
    assert set(kept["status"]) == {"ok"} and kept["trial_id"].nunique() == 1
    assert int(grace == "2s" or repeated) * 2 <= time.monotonic() - begin < 20


@pytest.mark.slow
def test_sigterm_at_any_moment_is_one_sentence_at_most(tmp_path: Path):
    sweep = write_sweep(tmp_path)
    for tenths in range(2, 60, 4):
        process = start("run", sweep, "--store", tmp_path / str(tenths))
        time.sleep(tenths / 10)
        started = started_by(process) if process.poll() is None else []
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        # Before the first line of the command has run, the signal has its usual effect.
        assert process.returncode in (143, -signal.SIGTERM, 0), f"after {tenths / 10} s: {out + err}"
        assert len(words_of(err)) <= 1, f"after {tenths / 10} s: {err}"
        assert_nothing_left(started)


@pytest.mark.slow
def test_a_signal_while_a_plan_is_made_is_one_sentence(tmp_path: Path):
    with start("plan", "quick", "--store", tmp_path, XDG_CACHE_HOME=str(tmp_path)) as process:
        wait_until(lambda: started_by(process))
        os.killpg(process.pid, signal.SIGUSR1)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (128 + signal.SIGUSR1, "", "lmsweep: ended by SIGUSR1\n")


def test_ctrl_c_in_the_first_moments_is_silent():
    # Seconds of a core: on a busy machine the command comes less far in a moment.
    for seconds in (0.05, 0.07, 0.1, 0.2):
        with start("plan", "quick") as process:
            wait_until(lambda used=seconds: sum(psutil.Process(process.pid).cpu_times()[:2]) >= used)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        if "Fatal Python error" in err or ("Traceback" in err and ", in main\n" not in err):
            continue  # Python was still on its way to the first line of the command
        assert process.returncode in (130, -signal.SIGINT), out + err
        assert "Traceback" not in err and len(err.strip().splitlines()) <= 1, f"after {seconds} s: {err}"


def test_a_folder_of_the_user_is_not_deleted_as_scratch_and_that_of_a_killed_process_is(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    theirs = [tmp_path / name / "measurements" for name in ("lmsweep-results", "lmsweep-scratch-results")]
    for folder in theirs:
        folder.mkdir(parents=True)
    dies = (
        "import os, signal\nfrom lmsweep.trials.machine.scratch import scratch_folder\n"
        "with scratch_folder() as folder:\n    (folder / 'file').touch(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", dies], env=os.environ | {"TMPDIR": str(tmp_path)}, cwd=ROOT, check=False)
    assert [path.name for path in tmp_path.glob("*/file")] == ["file"]
    kept = {folder.parent for folder in theirs}
    with scratch_folder() as first:
        with scratch_folder() as second:
            assert {*tmp_path.iterdir()} == {first, second, *kept}, "one that is in use is kept"
        assert {*tmp_path.iterdir()} == {first, *kept}
    assert {*tmp_path.iterdir()} == kept and all(folder.exists() for folder in theirs)


ANNOUNCING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


@pytest.mark.slow
@pytest.mark.parametrize("number", ANNOUNCING)
def test_the_trial_that_runs_may_end_even_if_all_processes_are_signalled_twice(tmp_path: Path, number: signal.Signals):
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
    assert process.returncode == 128 + number, out + err
    assert f"{ended_by(number, tmp_path)}. To resume: lmsweep run" in err
    assert f"{number.name}: 1 trial may finish within 60 s" in out
    assert_nothing_left(started)
    kept = pd.read_parquet(tmp_path / "store" / "measurements")
    assert set(kept["status"]) == {"ok"} and 1 <= kept["trial_id"].nunique() <= 2


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
    assert ended_by(first, tmp_path) in err and "Traceback" not in err
    assert_nothing_left(started)


def test_a_signal_that_is_ignored_as_under_nohup_stays_ignored_in_the_grace_period():
    begun: list[str] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with grace_period(60, begun.append):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert begun == []


def shown(first_line: str) -> str:
    """The block of shell in docs/clusters.md that begins so."""
    text = (ROOT / "docs/clusters.md").read_text()
    found = re.search(rf"```bash\n({first_line}.*?)```", text, flags=re.DOTALL)
    assert found, f"docs/clusters.md has none that begins with {first_line}"
    return found[1]


def job(folder: Path, task: int) -> subprocess.Popen[str]:
    """Starts the script as Slurm would start this task of two, with stand-ins for Slurm's commands."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    stand_ins = {"srun": 'exec "$@"', "squeue": "date -d '1 hour' +%Y-%m-%dT%H:%M:%S"}
    stand_ins["lmsweep"] = f'exec {" ".join(COMMAND)} "$@"'
    for name, words in stand_ins.items():
        (programs / name).write_text(f"#!/bin/bash\n{words}\n")
        (programs / name).chmod(0o755)
    path = folder / "job.sh"
    path.write_text(
        shown("#!/bin/bash\n#SBATCH --array").replace("run full", f"run {folder / 'sweep.yaml'} --no-predict")
    )
    slurm = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_JOB_ID": "7"}
    return subprocess.Popen(
        ["bash", str(path)],
        cwd=folder,
        env=os.environ | slurm | {"PYTHONPATH": PYTHONPATH, "PATH": f"{programs}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_preempted_array_job_ends_cleanly_and_its_requeue_resumes(tmp_path: Path) -> None:
    write_sweep(tmp_path, context_length=[128, 160, 192, 224], measure_steps=30)
    first = job(tmp_path, 1)
    wait_until(lambda: any(tmp_path.glob("results/measurements/*.parquet")), 120)
    for number in (signal.SIGCONT, signal.SIGTERM):  # Slurm signals every process of the job's steps
        os.killpg(first.pid, number)
    out, err = first.communicate(timeout=120)
    assert first.returncode in (143, -signal.SIGTERM), out + err
    results = tmp_path / "results" / "measurements"
    before = pd.read_parquet(results)["trial_id"].nunique()
    assert 1 <= before <= 2 and "2 trials, 2 to run" in out
    again = job(tmp_path, 1)  # requeued
    out, err = again.communicate(timeout=240)
    assert again.returncode == 0 and f"2 trials, {2 - before} to run" in out, out + err
    assert pd.read_parquet(results)["trial_id"].nunique() == 2


@pytest.mark.slow
def test_stores_of_several_jobs_are_merged_by_copying(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path)
    for number in (1, 2):
        shard = ("--shard", f"{number}/2", "--no-predict", "--store", tmp_path / f"results-{number}")
        assert lmsweep("run", sweep, *shard).returncode == 0
    (tmp_path / "results").mkdir()
    subprocess.run(["bash", "-c", shown("for part in results-")], cwd=tmp_path, check=True)
    assert "2 trials, 0 to run" in lmsweep("plan", sweep, "--no-predict", "--store", tmp_path / "results").stdout
