"""Arguments of the user's code as rows, columns, conditions and sides: `attention_args.tile`."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

import lmsweep
from lmsweep.trials.spec.config import RequestError, TrialConfig
from tests.support.made_up_results import LAPTOP, Attempts, samples


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Attention with two tiles, each with one and two stages, and PyTorch's."""
    attempts = Attempts(tmp_path_factory.mktemp("arguments") / "results")
    theirs = TrialConfig(d_model=16, attention="sdpa")
    attempts.ok(theirs, {"forward.time": samples(1.0, 0.01)}, fingerprint=LAPTOP, workload="attention")
    edited = replace(LAPTOP, code_digest="1111aaaa00000000")
    for tile, stages in product((32, 64), (1, 2)):
        mine = replace(theirs, attention="flash.py:attend", attention_args=f'{{"stages":{stages},"tile":{tile}}}')
        times = {"forward.time": samples(tile / 16 + stages, 0.01)}
        attempts.ok(mine, times, fingerprint=edited, workload="attention")
    return attempts.store.location


def test_an_argument_is_a_key_of_a_table_and_the_others_stay_together(store: str) -> None:
    both, tile, stages = {"attention": "flash.py:attend"}, ["attention_args.tile"], ["attention_args.stages"]
    found = lmsweep.table(store, rows=tile, cols=stages, values=["forward.time"], where=both)
    assert found.wide("median").to_numpy().tolist() == [[3.0, 4.0], [5.0, 6.0]]
    with pytest.raises(RequestError, match=r'differ in attention_args \({"stages":1}, {"stages":2}\)'):
        lmsweep.table(store, rows=tile, cols=[], values=["forward.time"], where=both)


def test_an_argument_is_a_condition_and_rows_that_do_not_give_it_are_null(store: str) -> None:
    where = {"attention_args.tile": "64", "attention_args.stages": "2"}
    found = lmsweep.table(store, rows=["attention"], cols=[], values=["forward.time"], where=where)
    assert found.wide("median").to_numpy().tolist() == [[6.0]]
    every = lmsweep.table(store, rows=[*where], cols=[], values=["forward.time"])
    assert every.cells["median"].to_list() == [1.0, 3.0, 4.0, 5.0, 6.0], "sdpa, which has none, comes first"


def test_an_argument_may_be_a_number_or_a_text_that_begins_with_one(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "results")
    for tile in ('"8x4"', "16", "8"):
        mine = TrialConfig(d_model=16, attention="flash.py:attend", attention_args=f'{{"tile":{tile}}}')
        attempts.ok(mine, {"forward.time": samples(1.0, 0.01)}, fingerprint=LAPTOP, workload="attention")
    found = lmsweep.table(attempts.store.location, rows=["attention_args.tile"], cols=[], values=["forward.time"])
    assert found.cells["attention_args.tile"].to_list() == [8, 16, "8x4"]


def test_two_values_of_an_argument_are_compared_cell_by_cell(store: str) -> None:
    sides = ({"attention_args.tile": "32"}, {"attention_args.tile": "64"})
    frame = lmsweep.compare(store, baseline=sides[0], contrast=sides[1], values=["forward.time"]).frame
    assert sorted(frame["ratio"].round(2)) == [1.5, 1.67]


def test_an_argument_that_no_result_has_is_named_with_those_that_there_are(store: str) -> None:
    with pytest.raises(RequestError, match=r"attention_args.tiles: no result has this argument; did you mean .*tile\?"):
        lmsweep.table(store, rows=["attention_args.tiles"], values=["forward.time"])
