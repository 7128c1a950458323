"""A run with a budget ends with it, whatever runs then, and says what was cut."""

import re
import shlex
import time
from pathlib import Path

import pandas as pd
import pytest

from tests.support.command import PYTHONPATH, lmsweep, write_sweep

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_core")]

SLEEPING = """
import time

from lmsweep.trials.results.measurement import Measurement


def measure(bench):
    time.sleep(600)
    yield Measurement(phase="sleep", metric="time", unit="s", samples=(600.0,))
"""
SWEEP = """
name: own
grids:
  - workloads: [noop, "bench.py:measure"]
    axes: {d_model: [16, 32]}
    fixed: {device: cpu, warmup_steps: 1, measure_steps: 3}
"""


def run_with_budget(folder: Path, *arguments: object, budget: int = 60, **environment: str) -> str:
    began = time.monotonic()
    words = ("run", *map(str, arguments), "--store", folder / "store", "--budget", f"{budget}s")
    done = lmsweep(*words, **environment)
    assert time.monotonic() - began < 1.1 * budget + 30, done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_trial_of_unknown_time_is_cut_soon_after_the_end_of_the_budget_and_named(tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text(SLEEPING)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    said = run_with_budget(tmp_path, tmp_path / "sweep.yaml", "--code", tmp_path, "--no-predict")
    assert "the time for the run is over; 1 trial may end within" in said
    assert re.search(r"(?m)^took .*, cut \d\d\.\d s$", said), said
    which = r"1 trial \(measure: .*\) cut at the end of the time; 1 trial \(measure: .*\) did not fit into"
    assert re.search(which + r" 60s\. To resume: lmsweep run .*sweep\.yaml", said), said
    rows = pd.read_parquet(tmp_path / "store" / "measurements")
    assert rows["trial_id"].nunique() == 2, "those of known time came first"
    assert {*rows["workload"]} == {"noop"} and {*rows["status"]} == {"ok"}


def test_a_compilation_that_takes_long_is_cut_with_its_trial(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if 'lmsweep.trials.isolation.server' in sys.orig_argv:\n"
        "    os.register_at_fork(after_in_child=lambda: time.sleep(600))\n"
    )
    sweep = write_sweep(tmp_path, context_length=[16, 32], compile="block", device="cpu")
    own = {"PYTHONPATH": f"{tmp_path}:{PYTHONPATH}", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    said = run_with_budget(tmp_path, sweep, "--no-predict", **own)
    assert re.search(r"1 trial \(context_length (16|32)\) cut at the end of the time", said), said


LAPTOP = """
name: laptop
grids:
  - workloads: [noop, timing]
    axes: {context_length: [16, 32], device: [cpu, mps]}
    fixed: {model: tiny, vocab_size: 100, batch_size: 1, warmup_steps: 1, measure_steps: 3, timeout_seconds: 36000}
  - workloads: [timing]
    fixed: {model: small, context_length: 64, device: cpu, batch_size: 1, warmup_steps: 5, measure_steps: 10000}
"""


def test_a_run_says_each_thing_once_and_at_its_end_what_is_left_with_its_time_and_the_command(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(LAPTOP)
    done = lmsweep("run", tmp_path / "sweep.yaml", "--store", tmp_path / "store", "--budget", "45s", "--no-predict")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert said.count("mps device") == 1 and said.count("unsupported") == 2, "in the summary of the plan"
    assert "missing" not in said and not re.search("found: (?!Training step: |the machine was busy )", said)
    assert re.search(r"^(\d) of \1 measurements succeeded$", said, flags=re.MULTILINE), said
    left = (
        r"about .* of measuring is left: 1 trial \((timing: small)\) did not fit into 45s\. To resume: lmsweep (.*)\n$"
    )
    found = re.search(left, done.stdout)
    assert found, said
    again = lmsweep(*shlex.split(found[2]), "--budget", "1s")
    assert again.returncode == 0 and "1 to run, in at most 4" in again.stdout, again.stdout
    assert "1 trial (timing: small) did not fit into 1s" in again.stdout


def test_a_plan_that_takes_longer_than_the_whole_run_may_ends_with_its_time(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\n\ntime.sleep(600)\n\n\nclass Model: ...\n")
    sweep = write_sweep(tmp_path, model="slow:Model", device="cpu")
    said = run_with_budget(tmp_path, sweep, "--code", tmp_path, budget=2)
    words = (
        r"the time for the run is over before all was planned: no trial began\. To resume: lmsweep run .*sweep\.yaml "
    )
    assert re.search(words, said), said
    assert not (tmp_path / "store" / "measurements").exists()
