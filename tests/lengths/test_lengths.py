"""Lengths of documents: where they come from, that they are drawn once, and the batches that trainers make of them."""

import subprocess
import sys
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from lmsweep.analysis import load
from lmsweep.orchestrator.sweep.sweep import load_sweep, single_trial
from lmsweep.trials.lengths.batches import Batch, batches, best_fit_decreasing
from lmsweep.trials.lengths.drawing import document_lengths, draw
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.identity import trial_id
from tests.support.command import answer_here
from tests.support.whole_steps import small

COUNTS = np.array([3, 5, 5, 8, 13], np.int64)
TINY = small(model="tiny", d_model=32, num_layers=1, context_length=64, batch_size=4, lengths="uniform(1, 64)")


def files(folder: Path) -> list[str]:
    lists = pa.array([[7] * count for count in COUNTS])
    (folder / "a.txt").write_text("".join(f"{count}\n" for count in COUNTS))
    (folder / "no_header.csv").write_text("".join(f"{count}\n" for count in COUNTS))
    csv.write_csv(pa.table({"name": list("abcde"), "tokens": COUNTS}), folder / "a.csv")
    np.save(folder / "a.npy", COUNTS)
    table = pa.table({"text": list("abcde"), "input_ids": lists, "other": COUNTS * 2})
    parquet.write_table(table, folder / "a.parquet")
    names = ["a.txt", "no_header.csv", "a.csv", "a.csv:tokens", "a.npy", "a.parquet", "a.parquet:input_ids"]
    return [str(folder / name) for name in names]


def test_a_file_in_any_form_has_the_same_lengths(tmp_path: Path) -> None:
    for name in files(tmp_path):
        assert sorted(draw(name, seed=1, number=5)) == list(COUNTS), name
        assert list(draw(name, seed=1, number=12)) == list(draw(str(tmp_path / "a.txt"), seed=1, number=12)), name
    assert sorted(draw(f"{tmp_path}/a.parquet:other", seed=1, number=5)) == list(COUNTS * 2)


def test_each_epoch_of_a_file_has_every_document_once_in_another_order(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1, 101))
    drawn = draw(str(tmp_path / "a.npy"), seed=3, number=200)
    assert sorted(drawn[:100]) == sorted(drawn[100:]) == list(range(1, 101))
    assert list(drawn[:100]) != list(drawn[100:])


def test_lengths_are_drawn_once_by_the_seed_whatever_the_model_and_the_process() -> None:
    config = replace(TINY, batching="grouped")
    first = list(islice(batches(config), 20))
    other = replace(config, precision="bf16", compile="block", d_model=64, device="cuda", loss="chunked")
    assert list(islice(batches(other), 20)) == first
    assert list(islice(batches(replace(config, seed=2)), 20)) != first
    script = "from lmsweep.trials.lengths.drawing import draw; print(*draw('lognormal(400, 0.8, 2048)', 5, 30))"
    there = subprocess.run([sys.executable, "-c", script], env={"PYTHONHASHSEED": "7"}, capture_output=True, check=True)
    assert [*map(int, there.stdout.split())] == list(draw("lognormal(400, 0.8, 2048)", 5, 30))


def test_distributions_have_their_parameters() -> None:
    drawn = draw("lognormal(400, 0.8, 2048)", 1, 100_000)
    assert list(drawn[:10]) == list(draw("lognormal(400, 0.8, 2048)", 1, 10)), "more begin with the same ones"
    assert np.median(drawn) == pytest.approx(400, rel=0.01) and drawn.max() == 2048 and drawn.min() >= 1
    below = np.log(drawn[drawn < 2048])
    assert np.quantile(below, 0.16) == pytest.approx(np.log(400) - 0.8, abs=0.03)
    drawn = draw("uniform(16, 512)", 1, 100_000)
    assert (drawn.min(), drawn.max()) == (16, 512) and drawn.mean() == pytest.approx(264, rel=0.01)


def test_a_batch_is_as_wide_as_its_longest_document_and_a_packed_row_as_the_context() -> None:
    padded = Batch(rows=((3,), (8,)))
    assert (padded.shape, padded.real_tokens, padded.padded_tokens) == ((2, 8), 11, 16)
    packed = Batch(rows=((3, 4), (10,)), width=10)
    assert (packed.shape, packed.real_tokens, packed.padded_tokens) == ((2, 10), 17, 20)
    assert packed.document_lengths == (3, 4, 3, 10), "padding is a document at the end of its row"


def test_grouping_brings_documents_of_about_equal_length_together_and_leaves_none_out() -> None:
    padded, grouped = (
        [*islice(batches(replace(TINY, batching=way)), 50)]
        for way in ("padded", "grouped")  # type: ignore[arg-type]
    )
    real = {sum(batch.real_tokens for batch in found) for found in (padded, grouped)}
    assert len(real) == 1, "the same documents"
    assert sum(b.padded_tokens for b in grouped) < 1.05 * real.pop() < sum(b.padded_tokens for b in padded) / 1.3
    widths = [batch.shape[1] for batch in grouped]
    assert widths == sorted(widths, reverse=True), "the longest first, as LengthGroupedSampler has them"


def test_rows_are_packed_as_trl_packs_them() -> None:
    # Of the docstring of `pack_dataset` in TRL: [1, 2, 3, 4] + [5, 6] + [7, 8, 9] + [10] in rows of 4.
    assert best_fit_decreasing([4, 2, 3, 1], 4) == [(4,), (3, 1), (2,)]
    assert best_fit_decreasing([5, 5, 3, 2, 5], 10) == [(5, 5), (5, 3, 2)]
    # Best fit puts 4 beside 6, which leaves less room, where first fit puts it beside 5.
    assert best_fit_decreasing([6, 5, 4], 10) == [(6, 4), (5,)]
    packed = [*islice(batches(replace(TINY, batching="packed", batch_size=2)), 100)]
    assert {batch.shape for batch in packed} == {(2, 64)}
    assert sum(batch.real_tokens for batch in packed) > 0.97 * sum(batch.padded_tokens for batch in packed)


def test_a_budget_holds_as_many_rows_as_fit_with_their_padding() -> None:
    config = replace(TINY, batching="token_budget", batch_tokens=256)
    found = [*islice(batches(config), 100)]
    assert all(batch.padded_tokens <= 256 for batch in found)
    for batch, after in pairwise(found):
        assert (len(batch.rows) + 1) * max(batch.shape[1], after.rows[0][0]) > 256, "one more would not fit"
    drawn = [length for batch in found for (length,) in batch.rows]
    assert drawn == list(draw(TINY.lengths or "", 1, len(drawn)))


def test_ranks_take_turns_and_share_no_batch() -> None:
    whole = [*islice(batches(TINY), 12)]
    assert [*islice(batches(TINY, 1, 3), 4)] == whole[1::3]


def test_a_mean_is_packed_documents_that_are_the_same_in_every_row() -> None:
    config = replace(TINY, lengths="16", batching="packed")
    first, second = islice(batches(config), 2)
    assert first == second == Batch(rows=(document_lengths(64, 16),) * 4, width=64)
    assert first.padded_tokens == first.real_tokens and not config.varies


def trial(**fields: Any) -> TrialConfig:
    given = {"model": "tiny", "context_length": 64, **fields}
    return single_trial([f"{name}={value}" for name, value in given.items()]).config


def test_the_content_of_a_file_is_part_of_the_trial(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("3\n5\n")
    first = trial(lengths=path)
    assert first.lengths is not None and first.lengths.startswith(f"{path}@")
    path.write_text("3\n5\n7\n")
    assert trial_id(trial(lengths=path)) != trial_id(first)
    with pytest.raises(RequestError, match="has changed since the trial was planned; plan it again"):
        next(batches(first))


BAD: dict[str, tuple[str | bytes, dict[str, Any], str]] = {
    "an empty file": ("", {}, "a.txt is empty; it needs the tokens of at least one document"),
    "text": ("12\nmany\n", {}, "Row #2: CSV conversion error to int64: invalid value 'many'; docs/lengths.md says"),
    "nan": ("3\nnan\n", {}, "invalid value 'nan'"),
    "no tokens": ("3\n0\n", {}, "row 2: 0 tokens; leave out documents without tokens"),
    "bytes": (b"\xff\xfe\x00", {}, "invalid"),
    "more than positions": ("3\n65\n", {}, "has 65 tokens, above the 64 positions of the model; set context_length=65"),
    "no budget": ("3\n9\n", {"batching": "token_budget"}, "batch_tokens is not given, and the longest document of"),
    "a small budget": (
        "3\n9\n",
        {"batching": "token_budget", "batch_tokens": 8},
        "has 9 tokens; set batch_tokens to at least 9",
    ),
    "no file": ("", {"lengths": "nowhere.txt"}, "cannot read nowhere.txt: No such file or directory"),
    "two numbers": ("", {"lengths": "lognormal(400, 0.8)"}, "is not lognormal(median, sigma, max) with numbers"),
    "no numbers": ("", {"lengths": "uniform(a, b)"}, "is not uniform(a, b) with numbers"),
    "from more to less": ("", {"lengths": "uniform(9, 3)"}, "needs a <= b, whole numbers from 1"),
    "from none": ("", {"lengths": "uniform(0, 3)"}, "whole numbers from 1"),
    "no spread": ("", {"lengths": "lognormal(40, nan, 64)"}, "has the sigma nan: write a number from 0, such as 0.8"),
    "spread below 0": ("", {"lengths": "lognormal(40, -1, 64)"}, "has the sigma -1: write a number from 0"),
    "normal": ("", {"lengths": "normal(3, 1)"}, "none of: lognormal(median, sigma, max), uniform(a, b)"),
    "above the positions": ("", {"lengths": "uniform(1, 65)"}, "above the 64 positions"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_lengths_are_refused_in_one_sentence_that_says_what_to_do(name: str, tmp_path: Path) -> None:
    content, fields, said = BAD[name]
    path = tmp_path / "a.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    words = [f"{key}={value}" for key, value in ({"lengths": path} | fields).items()]
    done = answer_here("trial", "model=tiny", "context_length=64", *words)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_column_is_named_where_a_file_has_several(tmp_path: Path) -> None:
    csv.write_csv(pa.table({"a": COUNTS, "b": list("abcde")}), tmp_path / "a.csv")
    assert trial(lengths=f"{tmp_path}/a.csv:a").lengths
    several = "has several columns; write a.csv:COLUMN (one of: a, b)"
    for lengths, said in (("a.csv", several), ("a.csv:c", "no column c")):
        with pytest.raises(RequestError) as error:
            trial(lengths=tmp_path / lengths)
        assert said in str(error.value)
    with pytest.raises(RequestError, match="invalid value 'a'"):
        trial(lengths=f"{tmp_path}/a.csv:b")


def test_commas_in_parentheses_do_not_separate_values(tmp_path: Path) -> None:
    grid = "{workloads: [timing], fixed: {model: tiny, context_length: 64}}"
    (tmp_path / "s.yaml").write_text(f"name: s\ngrids: [{grid}]\n")
    overrides = load_sweep(str(tmp_path / "s.yaml"), {"lengths": ["uniform(1,9)", "lognormal(3, 1, 64)"]})
    assert [one.config.lengths for one in overrides.trials] == ["uniform(1, 9)", "lognormal(3, 1, 64)"]
    assert trial(lengths="uniform(1,9)").lengths == "uniform(1, 9)"


def test_a_store_of_packed_documents_from_before_the_field_is_read() -> None:
    frame = load("h100-packing")
    packed = frame[frame["lengths"].notna()]
    assert set(packed["lengths"]) == {"512", "1024", "2048", "8192"} and set(packed["batching"]) == {"packed"}
    assert set(frame[frame["lengths"].isna()]["batching"]) == {"padded"}
