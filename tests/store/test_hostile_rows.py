"""A store of a stranger's, or of a newer lmsweep: what is damaged is named, and the rest is read."""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmsweep.trials.store.row_checks import LONGEST_NAME
from lmsweep.trials.store.store import Store
from tests.support.command import COMMAND, answer_here, program
from tests.support.made_up_results import Attempts, config, samples

DEEP = "[" * 100_000
NAME = "0123456789abcdef"
"""As lmsweep gives to its files: it moves no others."""

WRONG_ROWS: dict[str, tuple[str, Any]] = {
    "an unknown status": ("status", "paused"),
    "no status": ("status", None),
    "no device": ("device_name", None),
    "an unknown device": ("device", "tpu"),
    "a negative count": ("context_length", -1),
    "batches of no tokens": ("batch_tokens", 0),
    "more layers than numbers": ("num_layers", 2**62),
    "arguments that are no mapping": ("attention_args", "[1]"),
    "arguments cut off": ("attention_args", '{"tile": 6'),
    "arguments nested deep": ("model_args", DEEP),
    "a name of a megabyte": ("sweep", "x" * 1_000_000),
    "a time before computers": ("started_at", datetime(1901, 1, 1, tzinfo=UTC)),
}

READ_ALL_THE_SAME: dict[str, tuple[str, Any]] = {
    "a reference that is none": ("attention", "a:b<c>"),
    "a workload nobody has": ("workload", "nobody:knows"),
    "a flag of a newer lmsweep": ("flags", ["frozen", "frozen"]),
    "markup and colours": ("sweep", "<script>alert(1)</script>\x1b[31m\u202e"),
    "samples that are no numbers": ("samples", [float("nan"), None, float("inf")]),
    "a question of another kind": ("question", "[1]"),
    "a question nested deep": ("question", DEEP),
    "a question on nothing": ("question", '{"ask": "?", "compare": ["precision"], "where": {"nothing": "1"}}'),
    "a question of lists": ("question", '{"ask": NaN, "compare": {"a": 1}, "baseline": [1], "where": 2}'),
    "a question of many digits": ("question", '{"ask": "?", "a": 1' + "0" * 5000 + "}"),
    "another context than the rest of its result": ("context_length", 512),
    "another unit than the rest of its value": ("unit", "B"),
    "heads that do not divide the width": ("num_heads", 7),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    attempts = Attempts(tmp_path_factory.mktemp("good") / "results")
    for precision, seconds in (("fp32", 2.0), ("bf16", 1.0)):
        for length in (128, 256):
            time = samples(seconds * length, seconds)
            attempts.ok(config(context_length=length, precision=precision), {"step.time": time, "forward.time": time})
    return attempts.store.read()[0]


def changed(table: pa.Table, column: str, value: Any) -> pa.Table:
    field = table.schema.field(column)
    values = pa.array([value, *table[column].to_pylist()[1:]], field.type)
    return table.set_column(table.schema.get_field_index(column), field, values)


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[pa.Table], Store]:
    def write(table: pa.Table) -> Store:
        (tmp_path / "results" / "measurements").mkdir(parents=True)
        pq.write_table(table, tmp_path / "results" / "measurements" / f"{NAME}-a.parquet")
        return Store(str(tmp_path / "results"))

    return write


@pytest.mark.parametrize("what", WRONG_ROWS)
def test_a_row_that_is_none_of_ours_is_named_and_the_others_are_read(
    what: str, good: pa.Table, stored: Callable[[pa.Table], Store]
) -> None:
    column, value = WRONG_ROWS[what]
    store = stored(changed(good, column, value))
    rows, (damage,) = store.read()
    assert damage.path == f"measurements/{NAME}-a.parquet" and len(damage.error) <= 200
    assert damage.error.startswith(f"1 of its 8 rows are none of this lmsweep's: {column} is ")
    assert rows["attempt_id"].to_pylist() == good["attempt_id"].to_pylist()[1:]
    assert len(store.read(columns=["attempt_id"])[0]) == 7
    assert len(store.outcomes()) == 4
    assert len(store.set_aside_damage()) == 1
    rows, damages = store.read()
    assert len(rows) == 7 and not damages, "the others stay in a file of their own"
    assert (Path(store.location) / "damaged" / f"{NAME}-a.parquet").exists()


def filled(column: str, value: object) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.schema.get_field_index(column), column, pa.array([value] * len(table)))


WRONG_FILES: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "two columns of one name": (lambda t: t.append_column("status", t["status"]), "two of its columns have one name"),
    "lists where numbers belong": (filled("context_length", [1]), ""),
    "text where numbers belong": (filled("d_model", "wide"), "d_model"),
    "text where lists belong": (filled("samples", "0.1"), ""),
    "no identifiers": (lambda table: changed(table, "attempt_id", None), "rows without attempt_id"),
    "a version that is no number": (lambda t: t.replace_schema_metadata({"lmsweep_schema_version": "two"}), "two"),
    "a newer version": (lambda t: t.replace_schema_metadata({"lmsweep_schema_version": "9"}), "newer lmsweep"),
    "somebody else's": (lambda _: pa.table({"a": [1, 2]}), "not written by lmsweep"),
    "somebody else's with our names": (lambda _: pa.table({"status": ["ok"], "workload": ["timing"]}), "not written"),
    "our columns without names": (lambda t: pa.table({f.name: pa.nulls(2, f.type) for f in t.schema}), "not written"),
}


@pytest.mark.parametrize("what", WRONG_FILES)
def test_a_file_that_is_none_of_ours_is_named_and_the_others_are_read(
    what: str, good: pa.Table, stored: Callable[[pa.Table], Store]
) -> None:
    make, words = WRONG_FILES[what]
    store = stored(make(good))
    pq.write_table(good, Path(store.location) / "measurements" / f"{NAME}-b.parquet")
    rows, (damage,) = store.read()
    assert damage.path == f"measurements/{NAME}-a.parquet" and words in damage.error and len(damage.error) <= 200
    assert len(rows) == len(good) and len(store.outcomes()) == 4
    store.set_aside_damage()
    assert (Path(store.location) / "measurements" / f"{NAME}-a.parquet").exists() == damage.is_newer


def test_of_a_file_with_the_older_column_of_lengths_too_the_newer_ones_are_read(
    good: pa.Table, stored: Callable[[pa.Table], Store]
) -> None:
    rows, damage = stored(good.append_column("document_length", pa.array([64] * len(good)))).read()
    assert rows["lengths"].to_pylist() == good["lengths"].to_pylist() and not damage


TABLES = ("table", "compare --baseline precision=fp32 --contrast precision=bf16")
REPORTS = ("report -o {folder}/report.html", "report --share {folder}/shared")
ASKS = ("a question of lists", "a question on nothing")


@pytest.mark.parametrize(
    ("verbs", "what"),
    [
        *((TABLES, what) for what, (column, _) in READ_ALL_THE_SAME.items() if column != "question"),
        *((REPORTS[:1], what) for what in ASKS),
        *(pytest.param(("best", *REPORTS), what, marks=pytest.mark.slow) for what in READ_ALL_THE_SAME | WRONG_ROWS),
    ],
)
def test_every_verb_that_reads_shows_the_rest_and_what_other_lmsweeps_may_store(
    verbs: tuple[str, ...], what: str, good: pa.Table, stored: Callable[[pa.Table], Store]
) -> None:
    store = stored(changed(good, *(READ_ALL_THE_SAME | WRONG_ROWS)[what]))
    folder = Path(store.location).parent
    for verb, *options in map(str.split, verbs):
        words = [one.format(folder=folder) for one in options]
        done = answer_here("--debug", verb, store.location, *words)
        assert done.returncode == 0, f"{verb}: {done.stderr}"
        assert "\x1b[31m" not in done.stdout + done.stderr
        assert max(map(len, done.stdout.splitlines())) < 3 * LONGEST_NAME
    page = folder / "report.html"
    assert not page.exists() or "<script>alert" not in page.read_text()


def ask(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Root may read every file; without its capabilities it is a user like any other."""
    without_rights = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.geteuid() == 0 else ()
    if program(*without_rights, "true").returncode:
        pytest.skip("this user may not give up rights")
    return program(*without_rights, *command, COLUMNS="400")


def test_a_file_that_this_user_may_not_read_is_named_and_stays(attempts: Attempts) -> None:
    for context in (16, 32):
        attempts.ok(config(context_length=context), {"step.time": (1.0, 1.0, 1.0)})
    store = Path(attempts.store.location)
    theirs, _ = sorted((store / "measurements").iterdir())
    theirs.chmod(0)
    found = ask(*COMMAND, "table", store)
    assert found.returncode == 0 and "Permission denied" in found.stderr and "It stays where it is" in found.stderr
    set_aside = f"from lmsweep.trials.store.store import Store; Store({str(store)!r}).set_aside_damage()"
    assert ask(sys.executable, "-c", set_aside).returncode == 0
    assert theirs.exists() and not (store / "damaged").exists()


@pytest.mark.parametrize("part", [".", pytest.param("measurements", marks=pytest.mark.slow)])
def test_a_folder_that_this_user_may_not_enter_is_one_sentence(attempts: Attempts, part: str) -> None:
    attempts.ok(config(), {"step.time": (1.0, 1.0, 1.0)})
    folder = Path(attempts.store.location, part)
    folder.chmod(0)
    found = ask(*COMMAND, "table", attempts.store.location)
    folder.chmod(0o755)
    assert found.returncode == 2 and found.stderr.count("\n") == 1, found.stderr
    assert "cannot reach the store" in found.stderr and "Permission denied" in found.stderr


IN_EVERY_FILE = ["trial_id", "measurement_id", "environment_id", "attempt_id", "workload", "started_at"]


TEXT = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["x" * 900_000]))
INFLATING: dict[str, Callable[[pa.Table], pa.Table]] = {
    "many rows": lambda one: one.take(pa.array([0] * 2_000_000)),
    "long texts": lambda one: one.take(pa.array([0] * 100_000)).append_column("error", TEXT),
    "long lists": lambda one: one.append_column("samples", pa.array([[1.0] * 5_000_000])),
}


@pytest.mark.parametrize("inflating", INFLATING.values(), ids=INFLATING)
def test_a_small_file_that_stands_for_gigabytes_is_named_and_the_rest_is_read(tmp_path: Path, inflating) -> None:
    Attempts(tmp_path).ok(config(), {"step.time": (1.0, 1.0, 1.0)})
    honest = Store(str(tmp_path)).read()[0]
    path = tmp_path / "measurements" / f"{NAME}-aa.parquet"
    row = honest.slice(0, 1).select(IN_EVERY_FILE)
    pq.write_table(inflating(row), path, compression="zstd", dictionary_pagesize_limit=2**20)
    assert path.stat().st_size < 400_000
    before = pa.total_allocated_bytes()
    rows, damage = Store(str(tmp_path)).read()
    assert rows.equals(honest) and pa.total_allocated_bytes() - before < 10_000_000
    assert [(item.path, "1000 times" in item.error) for item in damage] == [(f"measurements/{path.name}", True)]


def test_a_merged_file_whose_rows_are_equal_except_in_their_attempts_is_read(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    for _ in range(50):
        attempts.ok(config(), {f"p{number}.time": (1.0,) * 50 for number in range(60)})
    Store(str(tmp_path)).compact()
    rows, damage = Store(str(tmp_path)).read()
    assert len(rows) == 3000 and not damage
