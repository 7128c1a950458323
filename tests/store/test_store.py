"""The store: what was appended is there, whatever happened meanwhile."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS, environment_id
from lmsweep.trials.results.measurement import Measurement, TensorDtype
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Attempt, DetailRow, Identity, Record
from lmsweep.trials.spec.config import RequestError, Trial, TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.store.store import Store
from tests.support.command import PYTHONPATH, ROOT
from tests.support.made_up_results import LAPTOP

CONFIG = TrialConfig(model="tiny", **asdict(SIZES["tiny"]))
MACHINE = LAPTOP


def rows(context_length: int = 16, *, started_at: datetime | None = None, **failure: str) -> list[Record]:
    trial = Trial(config=replace(CONFIG, context_length=context_length), workloads=("timing",), sweep="test")
    attempt = replace(Attempt.begin(trial), started_at=started_at or datetime.now(UTC))
    if failure:
        return [attempt.failure("timing", Status(failure["status"]), failure["error"], MACHINE)]
    measurements = [
        Measurement(phase=phase, metric="time", unit="s", samples=(0.1, 0.2), warmup_samples=(0.3,))
        for phase in ("forward", "backward")
    ]
    return attempt.rows("timing", measurements, MACHINE)


def test_rows_are_those_with_one_of_the_wanted_values_in_each_column_and_a_store_that_is_not_there_has_none(tmp_path):
    store = Store(str(tmp_path / "results"))
    assert store.rows(["samples"], status=["ok"]) == [] and not (tmp_path / "results").exists()
    store.keep(rows(16))
    store.keep(rows(32, status="oom", error="out of memory"))
    forward = {"samples": [0.1, 0.2], "phase": "forward"}
    assert store.rows(["samples"], phase=["forward"]) == [forward]
    assert store.rows(["samples", "phase"], phase=["forward", "optimizer"], metric=["time"])[0]["samples"] == [0.1, 0.2]
    assert store.rows(["context_length"], phase=["forward"], status=["oom"]) == []
    assert store.rows(["context_length"], status=["oom", "timeout"]) == [{"context_length": 32, "status": "oom"}]


def test_rows_come_the_oldest_first_whatever_their_files_are_called(tmp_path):
    store, began = Store(str(tmp_path)), datetime(2026, 1, 1, tzinfo=UTC)
    for hour in (3, 5, 1, 6, 2, 4):
        store.keep(rows(hour, started_at=began + timedelta(hours=hour))[:1])
    assert [row["context_length"] for row in store.rows(["context_length"])] == [1, 2, 3, 4, 5, 6]


def test_a_writer_merges_its_fragments_as_it_goes_unless_another_process_is_compacting(tmp_path, monkeypatch):
    monkeypatch.setattr("lmsweep.trials.store.store.KEPT_AT_A_TIME", 4)
    merged, plain = Store(str(tmp_path / "merged")), Store(str(tmp_path / "plain"))
    detail = TensorDtype(subject="toy", kind="loss", name="loss", dtype="float32", count=1, rules="cpu")

    def keep(contexts: range) -> None:
        for context in contexts:
            records = rows(context)
            identity = Identity(**{field.name: getattr(records[0], field.name) for field in fields(Identity)})
            merged.keep([DetailRow(trial=identity, detail=detail), *records])
            plain.keep(records)

    keep(range(1, 5))
    with (tmp_path / "merged" / ".compaction-lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keep(range(5, 9))
    keep(range(9, 15))
    for table in ("measurements", "dtypes"):
        names = [path.name for path in (tmp_path / "merged" / table).iterdir()]
        assert len([name for name in names if name.startswith("compacted-")]) == 2
        assert len(names) == 2 + 4 + 2
    rows_of_both = (store.read()[0].to_pandas() for store in (merged, plain))
    keys = ["context_length", "phase"]
    pd.testing.assert_frame_equal(*(one.sort_values(keys, ignore_index=True) for one in rows_of_both), check_like=True)
    assert merged.read("dtypes")[0].num_rows == 14


READ_AND_SAY_PEAK = """
import sys
import pyarrow
from lmsweep.trials.store.store import Store
Store(sys.argv[1]).read()
print(pyarrow.default_memory_pool().max_memory())
"""


@pytest.mark.slow
def test_reading_many_fragments_takes_hardly_more_memory_than_reading_a_few(tmp_path):
    store = Store(str(tmp_path))
    peaks = []
    for context in range(1, 601):
        store.keep(rows(context))
        if context in (300, 600):
            command = [sys.executable, "-c", READ_AND_SAY_PEAK, str(tmp_path)]
            peaks.append(int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout))
    assert peaks[1] < 1.5 * peaks[0]


def test_the_newest_result_says_whether_something_is_measured_and_without_one_the_newest_failure(tmp_path):
    store = Store(str(tmp_path))
    now = datetime.now(UTC)
    first = rows(started_at=now - timedelta(hours=1), status="lost", error="x")
    key = (environment_id(MACHINE), first[0].measurement_id)
    store.keep(first)
    store.keep(rows(started_at=now, status="error", error="x"))
    assert store.outcomes()[key].status == "error"
    # Measured when the clock had been set back by a day.
    store.keep(rows(started_at=now - timedelta(days=1)))
    assert store.outcomes()[key].status == "ok"
    store.keep(rows(started_at=now + timedelta(hours=1), status="oom", error="x"))
    assert store.outcomes()[key].status == "oom"
    store.keep(rows(started_at=now + timedelta(hours=2), status="lost", error="x"))
    assert store.outcomes()[key].status == "oom"


def test_results_of_another_environment_are_no_results_of_this_one():
    for name in ENVIRONMENT_FIELDS:
        changed = replace(MACHINE, **{name: 1 if name in ("device_memory", "measuring_version") else "other"})
        if name != "measuring_version":
            assert environment_id(changed) != environment_id(MACHINE), name
    assert environment_id(replace(MACHINE, host_name="other", host_load=3.0)) == environment_id(MACHINE)


def test_a_file_with_a_flipped_bit_is_read_as_it_was_written_or_named(tmp_path):
    store = Store(str(tmp_path))
    for context in range(16, 20):
        store.keep(rows(context))
    store.compact()
    (path,) = (tmp_path / "measurements").iterdir()
    content, expected, _ = path.read_bytes(), *store.read()
    dice, named = random.Random(0), 0
    for _ in range(50):
        flipped = bytearray(content)
        flipped[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        table, damage = store.read()
        named += len(damage)
        assert table.equals(expected) or [item.path for item in damage] == [f"measurements/{path.name}"]
    assert named > 30, "of most bits the file has a checksum"
    for harmed in (b"", bytes(len(content)), content[: len(content) // 2], content[:-1], b"status,ok\n" * 40):
        path.write_bytes(harmed)
        assert [item.path for item in store.read()[1]] == [f"measurements/{path.name}"], harmed


def test_a_tilde_that_the_shell_left_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    Store("~/results").keep(rows())
    assert len(pd.read_parquet(tmp_path / "results" / "measurements")) == 2
    with pytest.raises(RequestError, match="nobody-of-this-name"):
        Store("~nobody-of-this-name/results")


def test_a_store_whose_file_system_does_not_answer_is_refused_in_a_line():
    with pytest.raises(RequestError, match=r"\Acannot reach the store hdfs://nowhere.invalid:1/x: [^\n]*\Z"):
        Store("hdfs://nowhere.invalid:1/x")


APPEND_FOREVER = """
import sys
from tests.store.test_store import Store, rows
store = Store(sys.argv[1])
while True:
    for context in range(1, 50):
        store.keep(rows(context))
        print(context, flush=True)
"""


def test_what_was_appended_before_a_kill_is_there_and_nothing_is_half_there(tmp_path):
    words = [sys.executable, "-c", APPEND_FOREVER, str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": PYTHONPATH})
    for _ in range(30):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    said = 30 + len(process.stdout.read().splitlines())
    process.wait()
    table, damage = Store(str(tmp_path)).read()
    assert damage == []
    assert said <= table.num_rows / 2 <= said + 1
    assert len(pd.read_parquet(tmp_path / "measurements")) == table.num_rows


def test_the_next_merge_deletes_what_a_killed_merge_left_half_written(tmp_path):
    store = Store(str(tmp_path))
    for context in (16, 32):
        store.keep(rows(context))
    (tmp_path / ".writing" / f"{'a' * 32}-compacted-{'b' * 32}.parquet").write_bytes(b"half")
    store.compact()
    assert store.count_fragments() == 1 and store.read()[0].num_rows == 4
    assert not list((tmp_path / ".writing").iterdir())


def test_a_reader_that_meets_a_compaction_reads_every_row(tmp_path):
    """Fragments that were listed are gone when they are to be read: their rows are in a file that was not listed."""
    store = Store(str(tmp_path))
    for context in range(1, 21):
        store.keep(rows(context))
    kept = {path: path.read_bytes() for path in (tmp_path / "measurements").iterdir()}
    counts = set()
    for _ in range(2):
        for path in (tmp_path / "measurements").glob("compacted-*"):
            path.unlink()
        for path, content in kept.items():
            path.write_bytes(content)
        compaction = threading.Thread(target=lambda: Store(str(tmp_path)).compact())
        compaction.start()
        while compaction.is_alive():
            table, damage = store.read()
            counts.add((table.num_rows, len(damage)))
        compaction.join()
    assert counts == {(40, 0)}
