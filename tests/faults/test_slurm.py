"""The batch script of docs/clusters.md, with the signals that Slurm sends at a time limit and at a preemption."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from tests.support.command import COMMAND, PYTHONPATH, ROOT, lmsweep, write_sweep
from tests.support.waiting import wait_until


def script() -> str:
    text = (ROOT / "docs/clusters.md").read_text()
    found = re.search(r"```bash\n(#!/bin/bash\n#SBATCH --array.*?)```", text, flags=re.DOTALL)
    assert found, "docs/clusters.md has the script of a job array"
    return found[1]


def job(folder: Path, task: int) -> subprocess.Popen[str]:
    """Starts the script as Slurm would start this task of two, with stand-ins for Slurm's commands."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    stand_ins = {
        "srun": 'exec "$@"',
        "squeue": "date -d '1 hour' +%Y-%m-%dT%H:%M:%S",
        "lmsweep": f'exec {" ".join(COMMAND)} "$@"',
    }
    for name, words in stand_ins.items():
        (programs / name).write_text(f"#!/bin/bash\n{words}\n")
        (programs / name).chmod(0o755)
    path = folder / "job.sh"
    path.write_text(script().replace("run full", f"run {folder / 'sweep.yaml'} --no-predict"))
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


def stored(folder: Path) -> int:
    return int(pd.read_parquet(folder / "results" / "measurements")["trial_id"].nunique())


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
    before = stored(tmp_path)
    assert 1 <= before <= 2 and "2 trials, 2 to run" in out
    again = job(tmp_path, 1)  # requeued
    out, err = again.communicate(timeout=240)
    assert again.returncode == 0 and f"2 trials, {2 - before} to run" in out, out + err
    assert stored(tmp_path) == 2


@pytest.mark.slow
def test_stores_of_several_jobs_are_merged_by_copying(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path)
    for number in (1, 2):
        shard = ("--shard", f"{number}/2", "--no-predict", "--store", tmp_path / f"results-{number}")
        assert lmsweep("run", sweep, *shard).returncode == 0
    (tmp_path / "results").mkdir()
    words = re.search(
        r"```bash\n(for part in results-.*?)```", (ROOT / "docs/clusters.md").read_text(), flags=re.DOTALL
    )
    assert words
    subprocess.run(["bash", "-c", words[1]], cwd=tmp_path, check=True)
    assert "2 trials, 0 to run" in lmsweep("plan", sweep, "--no-predict", "--store", tmp_path / "results").stdout
