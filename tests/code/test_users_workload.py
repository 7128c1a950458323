"""A workload of the user, named by reference: what it measures, and what it yields."""

from pathlib import Path

import pandas as pd
import pytest

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.bench.run_trial import run_here
from lmsweep.trials.results.record import Record, Row, records_of
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.store.store import Store
from tests.support.command import lmsweep

pytestmark = pytest.mark.usefixtures("forget_code", "one_core")

BENCH = """
from lmsweep.trials.bench.phases import time_phases
from lmsweep.trials.results.measurement import Measurement


def measure(bench):
    import torch

    source = torch.randn(bench.config.d_model, bench.config.d_model)
    yield from time_phases(bench, copy=lambda: torch.empty_like(source).copy_(source))


def returns(bench):
    return 3
"""
SWEEP = """
name: own
grids:
  - workloads: [noop, "mine/bench.py:measure"]
    fixed: {d_model: 16, device: cpu, warmup_steps: 1, measure_steps: 3}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "bench.py").write_text(BENCH)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path


def trials(folder: Path, workload: str = "./mine/bench.py:measure") -> tuple[Trial, ...]:
    text = SWEEP.replace("mine/bench.py:measure", workload)
    (folder / "sweep.yaml").write_text(text)
    return load_sweep(str(folder / "sweep.yaml"), code=str(folder)).trials


def records(trial: Trial) -> list[Record]:
    return records_of(run_here(trial))


def test_it_measures_under_its_reference_as_its_name(folder: Path) -> None:
    rows = {(row.phase, row.metric): row for row in records(trials(folder)[-1])}
    row = rows["copy", "time"]
    assert row.workload == "mine/bench.py:measure" and row.samples and len(row.samples) == 3
    assert row.fingerprint.code_digest


def test_lmsweeps_own_workloads_of_the_same_grid_do_not_depend_on_the_state_of_its_code(folder: Path) -> None:
    noop, own = trials(folder)
    assert (noop.workloads, noop.code, own.references) == (("noop",), None, ("mine/bench.py:measure",))


def test_it_is_measured_again_if_any_field_of_a_series_changes(folder: Path) -> None:
    (own,) = (one for one in trials(folder) if one.code)
    (more,) = (
        one
        for one in load_sweep(str(folder / "sweep.yaml"), {"measure_steps": [4]}, code=str(folder)).trials
        if one.code
    )
    assert measurement_id(own.config, own.workloads[0]) != measurement_id(more.config, more.workloads[0])


@pytest.mark.parametrize("hostile", ["os:system", "builtins:eval", "subprocess:Popen", "mine.bench:torch.load", "a:b"])
def test_it_leads_only_to_what_the_users_code_defines(folder: Path, hostile: str) -> None:
    with pytest.raises(RequestError, match=hostile.partition(":")[0]):
        trials(folder, hostile)


def test_a_function_that_yields_nothing_is_an_error_with_its_line(folder: Path) -> None:
    (row,) = records(trials(folder, "mine/bench.py:returns")[-1])
    words = "mine/bench.py:13: returns returned a int; a workload yields its measurements"
    assert row.status == "error" and str(row.error).splitlines()[0] == words


def test_a_word_that_is_no_workload_is_refused_with_the_way_to_write_ones_own(folder: Path) -> None:
    with pytest.raises(RequestError, match=r"or your own as package\.module:measure"):
        trials(folder, "timin")


@pytest.mark.slow
def test_a_run_measures_it_again_only_after_an_edit_and_tables_show_it(folder: Path) -> None:
    sweep, store, code = folder / "sweep.yaml", folder / "results", ("--code", folder)
    done = lmsweep("run", sweep, "--store", store, *code)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = pd.read_parquet(store / "measurements")
    assert {*stored["workload"]} == {"noop", "mine/bench.py:measure"} and {*stored["status"]} == {"ok"}
    table = lmsweep("table", store, "--rows", "d_model", "--value", "copy.time")
    assert table.returncode == 0 and "copy.time" in table.stdout
    (folder / "mine" / "bench.py").write_text(BENCH + "\n# edited\n")
    plan = lmsweep("plan", sweep, "--store", store, *code)
    assert "2 trials, 1 to run" in plan.stdout, plan.stdout
    checked = lmsweep("check", sweep, *code)
    assert checked.returncode == 0 and "workload: mine/bench.py:measure  (mine/bench.py:6)" in checked.stdout
    assert lmsweep("report", store, "-o", folder / "page.html").returncode == 0


TOP = """
from enum import StrEnum
import numpy, torch
from lmsweep.trials.results.measurement import Allocation, Artifact, Measurement, Residual

class Phase(StrEnum):
    FORWARD = "forward"

def time(**changes):
    return Measurement(**{"phase": "forward", "metric": "time", "unit": "s", "samples": (0.1,)} | changes)

def measure(bench):
"""
LINE = TOP.count("\n") + 1
"""The line of what follows."""

YIELDED = {
    "time(samples=(0.1, None))": "a Measurement whose samples[1] is None; it must be a number",
    "time(samples=('0.1',))": "a Measurement whose samples[0] is '0.1'; it must be a number",
    "time(samples=numpy.ones(3))": "a Measurement whose samples is a ndarray; it must be a tuple",
    "time(samples=(torch.ones(1),))": "a Measurement whose samples[0] is a Tensor; it must be a number",
    "time(samples=0.1)": "a Measurement whose samples is 0.1; it must be a tuple",
    "time(samples=())": "a Measurement without samples; give None, and why in reason",
    "time(samples=None)": "a Measurement without samples; give None, and why in reason",
    "time(samples=(10**400,))": "a Measurement whose samples[0] is too large for a number of 64 bits",
    "time(samples=(float('nan'),))": "a Measurement whose samples[0] is nan; it must be finite",
    "time(phase=None)": "a Measurement whose phase is None; it must be text",
    "time(phase=chr(0xd800))": "a Measurement whose phase is no text that can be stored: it has half a character",
    "time(flags=('slow',))": "a Measurement whose flags[0] is 'slow'; it must be a Flag",
    "time(warmup_samples=None)": "a Measurement whose warmup_samples is None; it must be a tuple",
    "time(); yield time()": "forward.time twice; yield all of its samples together",
    "Residual(rank=1.5, block=0, bytes=1, count=1, shape='1', dtype='', operator=None, line=None, function=None)": (
        "a Residual whose rank is 1.5; it must be a whole number"
    ),
    "Residual(rank=2**63, block=0, bytes=1, count=1, shape='1', dtype='', operator=None, line=None, function=None)": (
        "a Residual whose rank is too large for a number of 64 bits"
    ),
    "Artifact(name='a', content='text', phase='step', metric='trace')": (
        "an Artifact whose content is 'text'; it must be bytes"
    ),
    "Artifact(name='a' * 300, content=b'', phase='step', metric='trace')": (
        "an Artifact whose name is too long for a file"
    ),
}


def rows_of(folder: Path, body: str) -> list[Row]:
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / "bench.py").write_text(f"{TOP}    {body}\n")
    (folder / "sweep.yaml").write_text(
        "name: own\ngrids:\n  - workloads: ['mine/bench.py:measure']\n    fixed: {d_model: 16, device: cpu}\n"
    )
    (trial,) = load_sweep(str(folder / "sweep.yaml"), code=str(folder)).trials
    return run_here(trial)


@pytest.mark.parametrize("yielded", YIELDED)
def test_what_cannot_be_stored_is_an_error_with_the_line_that_yields_it(tmp_path: Path, yielded: str) -> None:
    (row,) = records_of(rows_of(tmp_path, f"yield {yielded}"))
    assert row.status == "error"
    assert str(row.error).splitlines()[0] == f"mine/bench.py:{LINE}: TypeError: measure yielded {YIELDED[yielded]}"
    Store(str(tmp_path / "store")).keep([row])


def test_the_line_is_that_of_the_generator_that_yields_it(tmp_path: Path) -> None:
    (row,) = records_of(rows_of(tmp_path, "yield from inner()\n\ndef inner():\n    yield 3"))
    words = f"mine/bench.py:{LINE + 3}: TypeError: measure yielded 3; it must be a Measurement"
    assert str(row.error).splitlines()[0] == words


def test_numbers_and_words_of_other_types_are_stored_as_plain_ones(tmp_path: Path) -> None:
    rows = records_of(rows_of(tmp_path, "yield time(phase=Phase.FORWARD, samples=[numpy.float32(0.5), 1])"))
    (row,) = [row for row in rows if row.phase == "forward"]
    assert (row.samples, type(row.phase), [type(one) for one in row.samples or ()]) == ((0.5, 1.0), str, [float] * 2)
    Store(str(tmp_path / "store")).keep(rows)
