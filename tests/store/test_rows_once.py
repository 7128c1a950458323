"""Each row of a store counts once, whichever files hold it, and no file hides the rows of another."""

import io
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from lmsweep.trials.store.store import Store
from tests.store.test_store import rows


class ObjectStore(DirFileSystem):
    """Shows an object only once it is complete, and answers late, as S3 does: it can go between listing and reading."""

    protocol = "objects"

    def __init__(self, **_: Any) -> None:
        super().__init__("/", LocalFileSystem())

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.FileIO:
        time.sleep(0.01)
        return io.FileIO(f"/{path}") if mode == "rb" else Upload(Path("/", path))


class Upload(io.FileIO):
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(f"{path}~", "w")
        self.path = path

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.replace(f"{self.path}~", self.path)


MERGED = f"compacted-{'a' * 32}.parquet"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(str(tmp_path / "store"))
    for context in (16, 32):
        store.keep(rows(context))
    return store


def files(store: Store) -> list[Path]:
    return sorted(Path(store.location, "measurements").iterdir())


def contexts(store: Store) -> list[int]:
    return sorted(store.read()[0]["context_length"].to_pylist())


def test_files_that_hold_the_same_rows_in_any_number_and_order_count_them_once(store: Store, tmp_path: Path) -> None:
    before = files(store)
    kept = {path: path.read_bytes() for path in before}
    store.compact()
    (first,) = files(store)
    shutil.copy(first, first.with_name(MERGED))  # as two merges at once leave them
    for path, content in kept.items():  # a crash before they were deleted
        path.write_bytes(content)
    shutil.copy(before[0], before[0].with_name("copy.parquet"))  # somebody copied it, while it was there
    store.keep(rows(64))
    assert contexts(store) == [16, 16, 32, 32, 64, 64]
    assert store.read(columns=["phase"])[0].num_rows == 6
    assert {outcome.processes for outcome in store.outcomes().values()} == {1}
    store.compact()
    assert contexts(store) == [16, 16, 32, 32, 64, 64] and len(files(store)) == 2, "copy.parquet stays"


def test_rows_of_an_attempt_that_differ_between_files_are_all_read(store: Store) -> None:
    path = files(store)[0]
    table = pq.read_table(path)
    forged = table.set_column(
        table.schema.get_field_index("samples"), "samples", pa.array([[9.0, 9.0]] * 2, pa.list_(pa.float64()))
    )
    pq.write_table(pa.concat_tables([table.slice(0, 1), forged.slice(1)]), path.with_name(MERGED))
    table = store.read()[0]
    assert table.num_rows == 5, "the row that is the same counts once, the others twice"
    assert pc.sum(pc.list_flatten(table["samples"])).as_py() == pytest.approx(4 * 0.3 + 18.0)


def test_merges_at_once_without_a_lock_lose_no_row_and_count_none_twice(tmp_path: Path) -> None:
    fsspec.register_implementation(ObjectStore.protocol, ObjectStore, clobber=True)
    store, *stores = (Store(f"objects:/{tmp_path}/store") for _ in range(4))
    for context in range(64, 74):
        store.keep(rows(context))
    expected = contexts(store)
    for more in range(100, 102):
        threads = [threading.Thread(target=one.compact) for one in stores]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert contexts(store) == expected
        store.keep(rows(more))
        expected = contexts(store)
    store.compact()
    assert contexts(store) == expected and store.count_fragments() == 1 and len(expected) == 24
