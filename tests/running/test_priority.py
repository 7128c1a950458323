"""The priority at which trials run."""

import os
from pathlib import Path

import pytest

import lmsweep
from tests.support.command import lmsweep as command

NICE = """
import os
from lmsweep.trials.results.measurement import Measurement


def measure(bench):
    yield Measurement(phase="trial", metric="nice", unit="1", samples=(os.getpriority(os.PRIO_PROCESS, 0),))
"""
SWEEP = "name: nice\ngrids:\n  - workloads: ['./nice.py:measure']\n    fixed: {d_model: 16, device: cpu}\n"


@pytest.mark.slow  # starts Ray
def test_a_trial_runs_at_the_priority_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nice.py").write_text(NICE)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    done = command("run", "sweep.yaml")
    assert done.returncode == 0, done.stderr
    frame = lmsweep.load("results")
    (found,) = frame[frame["metric"] == "nice"]["median"]
    assert found == os.getpriority(os.PRIO_PROCESS, 0)
