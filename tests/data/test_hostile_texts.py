"""Text in a stranger's rows that should be JSON or a name may be anything: tables and reports show the other rows."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmsweep.trials.store.store import Store
from tests.support.command import answer_here
from tests.support.made_up_results import Attempts, config

TEXTS = {
    "nested": "[" * 100_000,
    "a nested mapping": '{"a":' * 50_000,
    "a list": "[1]",
    "a word": '"x"',
    "null": "null",
    "no JSON": "{",
    "not a number": '{"ask": NaN, "a": NaN}',
    "a nested argument": '{"a": {"b": [1]}}',
    "many digits": json.dumps({"a": "1" * 5000}),
    "a number of many digits": '{"a": 1' + "0" * 5000 + "}",
    "other keys": '{"ask": "?", "evil": 1}',
    "no fields": '{"ask": "?", "compare": ["nothing"]}',
    "a column of lists": '{"ask": "?", "compare": ["samples"]}',
    "numbers": '{"ask": 1, "compare": [2]}',
    "a text for a list": '{"ask": "?", "compare": "precision"}',
    "lists for mappings": '{"ask": "?", "compare": ["precision"], "baseline": [1], "where": 2}',
    "a condition on nothing": '{"ask": "?", "compare": ["precision"], "where": {"nothing": "1"}}',
    "a baseline of nothing": '{"ask": "?", "compare": ["precision"], "baseline": {"nothing": "1"}}',
}

QUICK = ("nested", "lists for mappings")


@pytest.fixture
def honest(tmp_path: Path) -> pa.Table:
    attempts = Attempts(tmp_path / "honest")
    for precision in ("fp32", "bf16"):
        attempts.ok(config(precision=precision), {"step.time": (1.0, 1.1, 1.0)})
    return Store(str(tmp_path / "honest")).read()[0]


def store_with(folder: Path, honest: pa.Table, column: str, texts: list[str]) -> Path:
    """A store with the honest rows once for each of these texts in a column."""
    rows = honest.take(pa.array([row for _ in texts for row in range(len(honest))]))
    values = pa.array([text for text in texts for _ in range(len(honest))], pa.string())
    place = honest.schema.get_field_index(column)
    (folder / "store" / "measurements").mkdir(parents=True)
    pq.write_table(
        rows.set_column(place, honest.schema.field(place), values), folder / "store" / "measurements" / "any.parquet"
    )
    return folder / "store"


def check_read(store: Path) -> None:
    done = answer_here("report", store, "-o", store.parent / "report.html")
    assert done.returncode == 0, done.stderr
    done = answer_here("table", store, "--rows", "model_args.a", "--value", "step.time")
    assert done.returncode in (0, 2) and "error in lmsweep" not in done.stderr, done.stderr


@pytest.mark.parametrize("column", ["model_args", "device_name"])
def test_any_text_in_a_column_leaves_the_results_readable(tmp_path: Path, honest: pa.Table, column: str) -> None:
    check_read(store_with(tmp_path, honest, column, [*TEXTS.values()]))


@pytest.mark.parametrize(
    "text", [pytest.param(TEXTS[name], id=name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in TEXTS]
)
def test_any_text_for_a_question_leaves_the_results_readable(tmp_path: Path, honest: pa.Table, text: str) -> None:
    check_read(store_with(tmp_path, honest, "question", [text]))
