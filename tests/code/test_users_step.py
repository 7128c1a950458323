"""A training step that is all the user's own: lmsweep calls its phases and knows nothing else of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmsweep.analysis import load
from lmsweep.analysis.tables.pivot import pivot
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.bench.fingerprint import fingerprint
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.results.roles import unknown_fields
from lmsweep.trials.store.store import Store

pytestmark = pytest.mark.usefixtures("one_core")

STEPS = """
import torch


class Step:
    def __init__(self, batch_size, context_length, device, dtype, width=64):
        self.weight = torch.randn(width, width, device=device, dtype=dtype, requires_grad=True)
        self.inputs = torch.randn(batch_size * context_length, width, device=device, dtype=dtype)

    def forward(self):
        self.loss = (self.inputs @ self.weight).square().mean()

    def backward(self):
        self.loss.backward()

    def optimize(self):
        with torch.no_grad():
            self.weight -= 0.1 * self.weight.grad
        self.weight.grad = None


class Evaluation:
    def forward(self):
        torch.ones(64, 64) @ torch.ones(64, 64)


def whole(d_model):
    def step():
        torch.ones(d_model, d_model).sum()
    return step


def nothing():
    return 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "step.py").write_text(STEPS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def rows(runner: IsolatedRunner) -> Callable[..., list[Record]]:
    def run(fields: str, *, workload: str = "timing") -> list[Record]:
        steps = "" if workload != "timing" else "warmup_steps: 1, measure_steps: 3, "
        Path("s.yaml").write_text(f"name: s\ngrids:\n  - workloads: [{workload}]\n    fixed: {{{steps}{fields}}}\n")
        (trial,) = load_sweep("s.yaml").trials
        return [row for row in runner.run(trial, fallback=fingerprint("cpu")) if isinstance(row, Record)]

    return run


def times(found: list[Record]) -> set[str]:
    assert {row.status for row in found} == {Status.OK}, found[0].error
    return {str(row.phase) for row in found if row.metric == "time"}


@pytest.mark.slow
def test_its_phases_are_those_methods_that_it_has_and_the_mode_calls(rows: Any) -> None:
    assert times(rows("step: mine.step:Step")) == {"forward", "backward", "optimizer", "step"}
    assert times(rows("step: mine.step:Step, mode: forward_backward")) == {"forward", "backward", "step"}
    assert times(rows("step: mine.step:Evaluation")) == {"forward", "step"}


def test_a_function_is_a_whole_step_with_the_dimensions_of_a_model_if_it_takes_them(rows: Any) -> None:
    assert times(rows("step: mine.step:whole, model: tiny")) == {"step"}
    (row,) = rows("step: mine.step:whole, model: tiny, mode: forward")
    assert row.status == Status.UNSUPPORTED


def test_its_memory_is_measured_without_categories(rows: Any) -> None:
    yielded = rows("step: {call: mine.step:Step, args: {width: 32}}, batch_size: 1", workload="memory")
    found = {f"{row.phase}.{row.metric}": row for row in yielded}
    weight = 32 * 32 * 4
    assert found["init.tensors"].samples == (weight + 256 * 32 * 4,)
    peak = found["step.peak_tensors"].samples
    assert peak[-1] >= 2 * weight + 2 * 256 * 32 * 4


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ("step: mine.step:Evaluation, batch_size: 8", Status.UNSUPPORTED, "batch_size has no effect"),
        ("step: mine.step:nothing", Status.ERROR, "returned a int with none of forward, backward, optimize"),
    ],
)
def test_a_field_without_effect_and_what_is_no_step_are_refused(
    rows: Any, fields: str, status: Status, words: str
) -> None:
    (row,) = rows(fields)
    assert row.status == status and words in (row.error or "")


def test_fields_that_the_step_does_not_read_are_null_and_their_table_does_not_show_them(rows: Any) -> None:
    given, not_given = rows("step: mine.step:Step"), rows("step: mine.step:Evaluation")
    unknown = {"d_model", "attention", "optimizer", "loss", "vocab_size", "feed_forward", "tied_head", "qk_norm"}
    assert set(given[0].unknown) == unknown
    assert set(not_given[0].unknown) == unknown | {"context_length", "batch_size"}
    store = Store("results")
    store.keep(not_given)
    assert {name: set(store.read()[0][name].to_pylist()) for name in unknown} == {name: {None} for name in unknown}
    results = load(store)
    assert results["tokens_per_second"].isna().all()
    table = pivot(results)
    assert not unknown & {*table.rows, *table.cols, *table.conditions}


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("def make(batch_size, **fields): ...", {"batch_size"}),
        ("def other(context_length): ...\nmake = other", {"context_length"}),
        ("def other(width, batch_size): ...\nimport functools\nmake = functools.partial(other, 3)", {"batch_size"}),
        ("from elsewhere import make", set()),
        ("class make:\n    def __init__(self, vocab_size, context_length): ...", {"vocab_size", "context_length"}),
    ],
)
def test_only_fields_that_its_signature_names_are_known(text: str, known: set[str]) -> None:
    """Others never reach the step: it has no vocabulary, attention or optimizer that a table could show."""
    Path("elsewhere.py").write_text("def make(): ...\n")
    Path("own.py").write_text(f"{text}\n")
    Path("s.yaml").write_text("name: s\ngrids:\n  - {workloads: [timing], fixed: {step: own:make}}\n")
    (trial,) = load_sweep("s.yaml").trials
    fields = {"d_model", "attention", "optimizer", "loss", "vocab_size", "feed_forward", "context_length", "batch_size"}
    assert fields - {*unknown_fields(trial, "timing")} == known
