"""A workload of the user, named by reference."""

from pathlib import Path

import pytest

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.identity import measurement_id
from tests.support.trial_here import run_here

pytestmark = pytest.mark.usefixtures("forget_code", "one_core")

BENCH = """
from lmsweep import time_phases


def measure(bench):
    import torch

    source = torch.randn(bench.config.d_model, bench.config.d_model)
    yield from time_phases(bench, copy=lambda: torch.empty_like(source).copy_(source))


"""
SWEEP = """
name: own
grids:
  - workloads: [noop, "./mine/bench.py:measure"]
    fixed: {d_model: 16, device: cpu, warmup_steps: 1, measure_steps: 3}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "bench.py").write_text(BENCH)
    return tmp_path


def trials(folder: Path) -> tuple[Trial, ...]:
    (folder / "sweep.yaml").write_text(SWEEP)
    return load_sweep(str(folder / "sweep.yaml"), code=str(folder)).trials


def test_it_measures_under_its_reference_as_its_name(folder: Path) -> None:
    rows = {(row.phase, row.metric): row for row in records_of(run_here(trials(folder)[-1]))}
    row = rows["copy", "time"]
    assert row.workload == "mine/bench.py:measure" and row.samples and len(row.samples) == 3
    assert row.fingerprint.code_digest


def test_lmsweeps_own_workloads_of_the_same_grid_do_not_depend_on_the_state_of_its_code(folder: Path) -> None:
    noop, own = trials(folder)
    assert (noop.workloads, noop.code, own.references) == (("noop",), None, ("mine/bench.py:measure",))


def test_it_is_measured_again_if_any_field_of_a_series_changes(folder: Path) -> None:
    own = trials(folder)[-1]
    _, more = load_sweep(str(folder / "sweep.yaml"), {"measure_steps": [4]}, code=str(folder)).trials
    assert measurement_id(own.config, own.workloads[0]) != measurement_id(more.config, more.workloads[0])
