"""A small file of a stranger's store that stands for gigabytes is named, and the rest is read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmsweep.trials.store.store import Store
from tests.support.made_up_results import Attempts, config

NAME = "0123456789abcdef-aa.parquet"
IN_EVERY_FILE = ["trial_id", "measurement_id", "environment_id", "attempt_id", "workload", "started_at"]


def many_rows(one: pa.Table) -> pa.Table:
    return one.select(IN_EVERY_FILE).take(pa.array([0] * 2_000_000))


def long_texts(one: pa.Table) -> pa.Table:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["x" * 900_000]))
    return one.select(IN_EVERY_FILE).take(pa.array([0] * 100_000)).append_column("error", texts)


def long_lists(one: pa.Table) -> pa.Table:
    return one.select(IN_EVERY_FILE).append_column("samples", pa.array([[1.0] * 5_000_000]))


@pytest.mark.parametrize("inflating", [many_rows, long_texts, long_lists])
def test_a_small_file_that_stands_for_gigabytes_is_named_and_the_rest_is_read(tmp_path: Path, inflating) -> None:
    Attempts(tmp_path).ok(config(), {"step.time": (1.0, 1.0, 1.0)})
    honest = Store(str(tmp_path)).read()[0]
    path = tmp_path / "measurements" / NAME
    pq.write_table(inflating(honest.slice(0, 1)), path, compression="zstd", dictionary_pagesize_limit=2**20)
    assert path.stat().st_size < 400_000
    before = pa.total_allocated_bytes()
    rows, damage = Store(str(tmp_path)).read()
    assert rows.equals(honest) and pa.total_allocated_bytes() - before < 10_000_000
    assert [(item.path, "1000 times" in item.error) for item in damage] == [(f"measurements/{NAME}", True)]


def test_a_merged_file_whose_rows_are_equal_except_in_their_attempts_is_read(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    for _ in range(50):
        attempts.ok(config(), {f"p{number}.time": (1.0,) * 50 for number in range(60)})
    Store(str(tmp_path)).compact()
    rows, damage = Store(str(tmp_path)).read()
    assert len(rows) == 3000 and not damage
