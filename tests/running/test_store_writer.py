"""The writer of a run: rows that cannot be stored do not keep others from the store."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmsweep.orchestrator.running.store_writer import StoreError, StoreWriter
from lmsweep.trials.results.measurement import Measurement, Operator
from lmsweep.trials.results.record import Attempt, Row, records_of
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.store.store import Store
from tests.store.test_store import CONFIG, MACHINE, rows

OPERATOR: dict[str, Any] = {"name": "add", "calls": 1, "steps": 1, "self_cpu": 1.0, "total_cpu": 1.0}
DETAIL = Operator(**OPERATOR | {"calls": 2**80}, self_device=None, total_device=None)
ODD: dict[str, list[Row]] = {
    "a sample that is text": [replace(row, samples=(0.1, "0.2")) for row in records_of(rows(32))],  # type: ignore[arg-type]
    "a phase of half a character": [replace(row, phase="\ud800") for row in records_of(rows(32))],
    "a number that is too large": Attempt.begin(
        Trial(config=replace(CONFIG, context_length=32), workloads=("timing",), sweep="test")
    ).rows("timing", [DETAIL], MACHINE)
    + rows(32),
}


@pytest.mark.parametrize("odd", ODD)
def test_rows_that_cannot_be_stored_are_an_error_and_all_others_are_stored(tmp_path: Path, odd: str) -> None:
    kept: list[str] = []
    writer = StoreWriter(Store(str(tmp_path)), lambda _planned, records: kept.extend(row.status for row in records))
    for one in (rows(16), ODD[odd], rows(64)):
        writer.put(None, list(one))  # type: ignore[arg-type]
    writer.close()
    table = Store(str(tmp_path)).read()[0].to_pandas().set_index("context_length")
    assert table["status"].groupby(level=0).first().to_dict() == {16: "ok", 32: "error", 64: "ok"}
    assert kept == ["ok", "ok", "error", "ok", "ok"]
    assert table.loc[32, "error"].startswith("its rows cannot be stored: ")
    assert Store(str(tmp_path)).read("operators")[0].num_rows == 0, "half of the attempt was stored"


CALLS = Measurement(phase="step", metric="calls", unit="1", samples=(1.0,))
DETAILS: list[Row] = Attempt.begin(Trial(config=CONFIG, workloads=("profile",), sweep="test")).rows(
    "profile", [CALLS, Operator(**OPERATOR, self_device=None, total_device=None)], MACHINE
)
LOSSES: dict[str, Callable[[Path], object]] = {
    "the store": shutil.rmtree,
    "a table": lambda store: shutil.rmtree(store / "operators"),
    "a file": lambda store: next((store / "measurements").iterdir()).unlink(),
    "the content of a file": lambda store: next((store / "measurements").iterdir()).write_bytes(b""),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_a_writer_says_how_many_trials_the_store_has_lost(tmp_path: Path, lost: str) -> None:
    store = Store(str(tmp_path / "store"))
    writer = StoreWriter(store, lambda _planned, _records: None)
    writer.put(None, list(DETAILS))  # type: ignore[arg-type]
    writer.put(None, list(rows(32)))  # type: ignore[arg-type]
    writer.close()
    writer.check_stored()
    store.compact()
    writer.check_stored()
    LOSSES[lost](tmp_path / "store")
    with pytest.raises(StoreError, match=r"has lost results of (1 trial|2 trials) of the 2 that were stored: "):
        writer.check_stored()
