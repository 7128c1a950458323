"""What a workload of the user's own yields is checked before it becomes a row."""

from pathlib import Path

import pytest

from lmsweep.orchestrator.features.trial.trial_table import show_trial
from lmsweep.orchestrator.running.progress.trial_words import outcome
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.results.record import Row, failures_of, records_of
from lmsweep.trials.store.store import Store
from tests.support.trial_here import run_here

pytestmark = pytest.mark.usefixtures("forget_code", "one_core")

TOP = """
from enum import StrEnum
import numpy
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
    "time(samples=numpy.ones(3))": "a Measurement whose samples is a ndarray; it must be a tuple",
    "time(samples=())": "a Measurement without samples; give None, and why in reason",
    "time(samples=(10**400,))": "a Measurement whose samples[0] is too large for a number of 64 bits",
    "time(samples=(float('nan'),))": "a Measurement whose samples[0] is nan; it must be finite",
    "time(phase=None)": "a Measurement whose phase is None; it must be text",
    "time(phase=chr(0xd800))": "a Measurement whose phase is no text that can be stored: it has half a character",
    "time(flags=('slow',))": "a Measurement whose flags[0] is 'slow'; it must be a Flag",
    "time(samples=(0.1, -1.5))": "a Measurement whose samples[1] is -1.5 s; a time is never below 0",
    "time(metric='peak', unit='B', samples=(-1,))": (
        "a Measurement whose samples[0] is -1 B; a number of bytes is never below 0"
    ),
    "time(metric='m' * 201)": "a Measurement whose metric has more than 200 characters",
    "time(); yield time()": "forward.time twice; yield all of its samples together",
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
    grid = "{workloads: ['mine/bench.py:measure'], fixed: {d_model: 16, device: cpu}}"
    (folder / "sweep.yaml").write_text(f"name: own\ngrids: [{grid}]\n")
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


@pytest.mark.parametrize(("body", "did"), [("yield from ()", "yielded nothing"), ("return 3", "returned a int")])
def test_a_workload_that_yields_nothing_is_an_error_with_its_line(tmp_path: Path, body: str, did: str) -> None:
    (row,) = records_of(rows_of(tmp_path, body))
    assert row.status == "error"
    words = f"mine/bench.py:{LINE - 1}: measure {did}; a workload yields its measurements"
    assert str(row.error).splitlines()[0] == words


@pytest.mark.parametrize(("unit", "metric"), [("s", "exposed_time"), ("degC", "temperature"), ("1", "loss")])
def test_differences_and_what_has_no_zero_may_be_below_0(tmp_path: Path, unit: str, metric: str) -> None:
    rows = records_of(rows_of(tmp_path, f"yield time(unit={unit!r}, metric={metric!r}, samples=(-1.5,))"))
    assert {row.status for row in rows} == {"ok"}


@pytest.mark.parametrize(("letter", "times"), [("x", 1_000_000), ("ü", 9_000)])
def test_an_error_is_at_most_8_kb_of_head_and_tail_in_its_row_and_200_characters_in_a_line(
    tmp_path: Path, letter: str, times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = records_of(rows_of(tmp_path, f"raise ValueError({letter!r} * {times})"))
    error = str(row.error)
    assert 7_000 < len(error.encode()) <= 8_000
    assert error.startswith(f"mine/bench.py:{LINE}: ValueError: ") and error.rstrip().endswith(letter * 100)
    assert outcome([row]).startswith(f"error: mine/bench.py:{LINE}: ValueError: ") and len(outcome([row])) < 210
    show_trial([row])
    assert max(map(len, capsys.readouterr().out.splitlines())) < 300
    failed = records_of(failures_of([row], "half a character: \ud800" + "y" * 1_000_000))
    assert len(str(failed[0].error).encode()) <= 8_000
    Store(str(tmp_path / "store")).keep([row, *failed])


def test_a_reason_is_at_most_8_kb(tmp_path: Path) -> None:
    rows = records_of(rows_of(tmp_path, "yield time(samples=None, reason='x' * 1_000_000)"))
    assert max(len(row.reason or "") for row in rows) <= 8_000


def test_numbers_and_words_of_other_types_are_stored_as_plain_ones(tmp_path: Path) -> None:
    rows = records_of(rows_of(tmp_path, "yield time(phase=Phase.FORWARD, samples=[numpy.float32(0.5), 1])"))
    (row,) = [row for row in rows if row.phase == "forward"]
    assert (row.samples, type(row.phase), [type(one) for one in row.samples or ()]) == ((0.5, 1.0), str, [float] * 2)
    Store(str(tmp_path / "store")).keep(rows)
