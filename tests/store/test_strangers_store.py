"""A store from a stranger: it deletes, moves, overwrites and reads nothing outside of itself."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lmsweep.trials.results.measurement import Artifact
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.store.local_folder import ABANDONED_SECONDS
from lmsweep.trials.store.parquet_file import TABLES
from lmsweep.trials.store.store import Store
from tests.store.test_store import CONFIG, MACHINE, rows
from tests.support.command import answer_here

PARTS = (".writing", "damaged", "artifacts", *TABLES)
HALF_WRITTEN = f"{'a' * 32}-thesis.parquet"


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A folder of the reader's, years old. Its names are those that lmsweep would delete or move."""
    folder = tmp_path / "documents"
    folder.mkdir()
    for name in ("thesis.txt", HALF_WRITTEN, f"{'b' * 16}-{'c' * 16}.parquet", f"compacted-{'d' * 32}.parquet"):
        (folder / name).write_text("a thesis")
        os.utime(folder / name, (0, 0))
    return folder


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its content and the time of its last change."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = Store(str(tmp_path / "store"))
    for context in (16, 32):
        store.keep(rows(context))
    return tmp_path / "store"


def make_link(at: Path, to: Path) -> None:
    if at.is_dir():
        shutil.rmtree(at)
    at.symlink_to(to)


@pytest.mark.parametrize("part", [*PARTS, ".compaction-lock"])
def test_a_store_with_a_link_is_refused_whatever_the_link_leads_to(folder: Path, documents: Path, part: str) -> None:
    before, nothing = state(documents), folder.parent / "nothing"
    targets = (documents, documents / "thesis.txt", nothing)
    for scheme, target in zip(("", "file://", "local://"), targets, strict=True):
        make_link(folder / part, target)
        with pytest.raises(RequestError, match=rf"{part} is a link, .* follows no link"):
            Store(f"{scheme}{folder}")
        (folder / part).unlink()
    assert state(documents) == before and not nothing.exists()


def test_every_command_refuses_it_and_leaves_the_readers_files_alone(folder: Path, documents: Path) -> None:
    before, page = state(documents), folder.parent / "page.html"
    make_link(folder / "measurements", documents)
    for words in (
        ("table", folder),
        ("report", folder, "-o", page),
        ("compare", folder, folder),
        ("run", "quick", "--no-predict", "--store", folder),
        ("best", folder),
        ("report", "h200-costs", "--with", folder, "-o", page),
    ):
        done = answer_here(*words)
        assert done.returncode == 2 and "measurements is a link" in done.stderr, (words, done.stdout, done.stderr)
    assert state(documents) == before


@pytest.mark.parametrize(
    ("part", "write"),
    [
        ("damaged", lambda store: store.set_aside_damage()),
        (".writing", lambda store: store.set_aside_damage()),
        ("artifacts", lambda store: store.add_artifact("artifacts/thesis.txt", b"x")),
        ("measurements", lambda store: store.keep(rows(64))),
    ],
)
def test_a_folder_that_becomes_a_link_while_the_store_is_open_is_not_followed(
    folder: Path, documents: Path, part: str, write: Callable[[Store], object]
) -> None:
    before = state(documents)
    broken = sorted((folder / "measurements").iterdir())[0]
    broken.write_bytes(b"broken")
    store = Store(str(folder))
    make_link(folder / part, documents)
    with pytest.raises((OSError, RequestError), match="is a link"):
        write(store)
    for work in (store.compact, store.set_aside_damage, lambda: store.keep(rows(64))):
        with contextlib.suppress(OSError, RequestError):
            work()
    assert state(documents) == before


def test_a_file_that_is_a_link_is_named_and_neither_read_merged_nor_moved(folder: Path, tmp_path: Path) -> None:
    own = Store(str(tmp_path / "own"))
    own.keep(rows(128))
    private = next((tmp_path / "own" / "measurements").iterdir())
    link = folder / "measurements" / private.name
    link.symlink_to(private)
    store = Store(str(folder))
    table, damage = store.read()
    assert set(table["context_length"].to_pylist()) == {16, 32}
    assert [(item.path, item.stays) for item in damage] == [(f"measurements/{link.name}", True)]
    assert "is a link" in answer_here("table", folder).stderr
    assert [item.path for item in store.set_aside_damage()] == [f"measurements/{link.name}"]
    store.compact()
    assert link.is_symlink() and private.exists() and Store(str(folder)).count_fragments() == 2


def test_only_files_with_names_that_lmsweep_gives_are_deleted_and_moved(folder: Path) -> None:
    store = Store(str(folder))
    kept = {
        folder / ".writing" / "thesis.txt": b"a thesis",
        folder / ".writing" / "compacted-thesis.parquet": b"a thesis",
        folder / ".writing" / f"{'a' * 32}-thesis" / "chapter.txt": b"a thesis",
        folder / "measurements" / "broken.parquet": b"not Parquet",
        folder / "measurements" / "mine.parquet": sorted((folder / "measurements").iterdir())[0].read_bytes(),
    }
    (folder / ".writing" / HALF_WRITTEN).write_bytes(b"half")
    for path, content in kept.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    old = time.time() - 2 * ABANDONED_SECONDS
    for path in (*kept, *(folder / ".writing").iterdir()):
        os.utime(path, (old, old))
    (begun := folder / ".writing" / f"{'b' * 32}-thesis.parquet").write_bytes(b"another writes it now")
    assert [(item.path, item.stays) for item in store.set_aside_damage()] == [("measurements/broken.parquet", True)]
    store.compact()
    assert {path: path.read_bytes() for path in kept} == kept and begun.exists()
    assert not (folder / ".writing" / HALF_WRITTEN).exists()
    assert store.read()[0].num_rows == 4, "rows of mine.parquet and of the merged file count once"


def test_a_damaged_file_does_not_overwrite_another_that_was_set_aside(folder: Path) -> None:
    name = sorted((folder / "measurements").iterdir())[0].name
    for content in (b"first", b"second", b"third"):
        (folder / "measurements" / name).write_bytes(content)
        Store(str(folder)).set_aside_damage()
    assert {path.read_bytes() for path in (folder / "damaged").iterdir()} == {b"first", b"second", b"third"}


def test_what_waits_to_be_sent_leads_to_no_other_files(tmp_path: Path, documents: Path) -> None:
    waiting, there = Store(str(tmp_path / "waiting")), Store(str(tmp_path / "there"))
    trace = Artifact(name="trace.json", content=b"{}", phase="step", metric="trace")
    trial = Trial(config=CONFIG, workloads=("profile",), sweep="test")
    waiting.keep(Attempt.begin(trial).rows("profile", [trace], MACHINE))
    before = state(documents)
    (tmp_path / "waiting" / "artifacts" / "link").symlink_to(documents)
    (tmp_path / "waiting" / "artifacts" / "thesis.txt").symlink_to(documents / "thesis.txt")
    (tmp_path / "waiting" / "measurements" / f"{'e' * 16}-{'f' * 16}.parquet").symlink_to(documents / "thesis.txt")
    (tmp_path / "waiting" / "measurements" / "mine.parquet").write_bytes(b"mine")
    there.take_from(waiting)
    assert state(documents) == before
    arrived = {path.name for path in (tmp_path / "there").rglob("*") if path.is_file()}
    assert len(arrived) == 2 and "trace.json" in arrived and there.read()[0].num_rows == 1
    assert (tmp_path / "waiting" / "measurements" / "mine.parquet").read_bytes() == b"mine"


def test_a_store_that_is_given_as_a_link_is_the_store(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    store = Store(str(tmp_path / "link"))
    store.keep(rows(64))
    store.compact()
    assert store.read()[0].num_rows == 6 and len(pq.read_table(tmp_path / "store" / "measurements")) == 6


def test_the_results_of_a_shared_folder_are_no_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "results").symlink_to(folder)
    done = answer_here("table", tmp_path / "shared")
    assert done.returncode == 2 and "results is a link" in done.stderr


@pytest.mark.slow
def test_commands_that_read_change_nothing_in_a_store(folder: Path, tmp_path: Path) -> None:
    (folder / "measurements" / "broken.parquet").write_bytes(b"not Parquet")
    (folder / ".writing" / HALF_WRITTEN).write_bytes(b"half")
    os.utime(folder / ".writing" / HALF_WRITTEN, (0, 0))
    before, names = state(folder), sorted(folder.rglob("*"))
    for words in (
        ("table", folder),
        ("report", folder, "-o", tmp_path / "page.html"),
        ("report", folder, "--share", tmp_path / "shared"),
        ("compare", folder, folder),
        ("plan", "quick", "--no-predict", "--store", folder),
    ):
        answer_here(*words)
    assert (state(folder), sorted(folder.rglob("*"))) == (before, names)
