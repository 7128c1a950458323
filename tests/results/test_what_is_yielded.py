"""What a workload of the user's own yields is checked before it becomes a row."""

from pathlib import Path

import pytest

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.bench.run_trial import run_here
from lmsweep.trials.results.record import Row, records_of
from lmsweep.trials.store.store import Store

pytestmark = pytest.mark.usefixtures("forget_code", "one_core")

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
    """The rows of a trial, in this process, whose workload ends so."""
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
