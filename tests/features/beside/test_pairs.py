"""Which published number stands beside which result, and how the two are compared."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lmsweep import analysis
from lmsweep.analysis.tables.terminal_table import terminal_text
from lmsweep.orchestrator.features.beside.pairs import NoCounterpartError, paired
from lmsweep.orchestrator.features.beside.side_by_side import beside as beside_published
from tests.support.command import lmsweep_here
from tests.support.made_up_results import Attempts, gpu, samples

COURSE: dict[str, Any] = {"context_length": 256, "batch_size": 4, "attention": "naive", "mode": "forward_backward"}


def beside(attempts: Attempts, name: str = "published") -> pd.DataFrame:
    return paired(analysis.load(attempts.store, pooled=False), name).frame


def test_each_pair_has_its_number_its_interval_and_a_verdict(attempts: Attempts) -> None:
    trial = gpu(precision="bf16", **COURSE)
    attempts.ok(trial, {"forward.time": samples(0.01, 1e-5), "backward.time": samples(0.02, 1e-5)})
    found = beside(attempts)
    row = found[(found["source"] == "seed2 e2e_bf16") & (found["part"] == "forward")].iloc[0]
    assert row["theirs"] == 0.0115468 and row["mine"] == pytest.approx(0.01)
    assert row["ratio"] == pytest.approx(1.15468)
    assert (
        row["theirs_low"] < row["theirs"] < row["theirs_high"] and row["ratio_low"] < row["ratio"] < row["ratio_high"]
    )
    assert row["measurement_id"] in set(analysis.load(attempts.store)["measurement_id"])
    assert row["clock"] == "wall" and row["verdict"] in ("faster", "ambiguous") and row["hardware"] == "RTX PRO 6000 WK"
    assert row["differs"] == "not stated: warmup_steps, measure_steps, software"


def test_a_warm_up_that_is_stated_is_that_of_the_result_and_else_one_in_a_steady_state_stands_for_it(
    attempts: Attempts,
) -> None:
    for precision in ("tf32", "bf16"):
        for warmup_steps in (0, 1, 5):
            trial = gpu(precision=precision, warmup_steps=warmup_steps, measure_steps=10, **COURSE)
            attempts.ok(trial, {"forward.time": samples(0.01, 1e-5)})
    found = beside(attempts).set_index(["source", "part"])["warmup_steps"]
    assert found["seed2 e2e_no_warmup", "forward"] == 0 and found["seed2 e2e_warmup1", "forward"] == 1
    assert found.loc[[("seed2 e2e_bf16", "forward")]].tolist() == [5]


def test_another_batch_size_is_no_counterpart(attempts: Attempts) -> None:
    for batch_size, found in ((4, False), (64, True)):
        attempts.ok(gpu(precision="bf16", **COURSE | {"batch_size": batch_size}), {"forward.time": samples(0.01, 1e-5)})
        assert ("seed3 run_log_small" in set(beside(attempts)["source"])) == found


def test_a_number_that_its_source_contradicts_counts_in_no_mean(attempts: Attempts) -> None:
    attempts.ok(
        gpu(precision="bf16", **COURSE), {"forward.time": samples(0.01, 1e-5), "backward.time": samples(0.02, 1e-5)}
    )
    found = beside(attempts).set_index(["source", "part"])["caveats"]
    assert (
        found["seed2 e2e_bf16", "backward"] == ("backward_by_subtraction",) and not found["seed2 e2e_bf16", "forward"]
    )
    assert found["seed4 mixed_precision", "forward"] == ("host_bound",)


def test_results_without_a_counterpart_are_refused(attempts: Attempts) -> None:
    attempts.ok(gpu(context_length=333), {"step.time": samples(1, 1e-3)})
    with pytest.raises(NoCounterpartError, match="small at 333"):
        beside(attempts)


@pytest.mark.slow
def test_terminal_page_and_json_say_one_claim_of_published_numbers_in_forty_lines(tmp_path: Path) -> None:
    words = ("compare", "h200-end-to-end", "--with", "published")
    printed, as_json = lmsweep_here(*words), lmsweep_here(*words, "--format", "json")
    assert printed.count("\n") <= 40 and max(map(len, printed.splitlines())) <= 80
    lmsweep_here("report", "h200-end-to-end", "--with", "published", "-o", tmp_path / "page.html")
    page = unescape((tmp_path / "page.html").read_text("utf-8"))
    claim = " ".join(json.loads(as_json)["title"].splitlines()[:-1])
    assert claim.startswith("NVIDIA H200 is ") and " faster than published on RTX PRO 6000 WK [" in claim
    assert claim in " ".join(printed.splitlines()) and claim in page
    lmsweep_here("report", "h200-end-to-end", "-o", tmp_path / "alone.html")
    alone = unescape((tmp_path / "alone.html").read_text("utf-8"))
    (limits,) = re.findall(r'id="answer-details">(.*?)</p>', alone)
    assert limits.strip() and limits.strip() in page, "the sweep's own claim keeps its clock and what limits it"


def test_no_line_of_the_answer_is_wrapped_by_a_terminal() -> None:
    shipped = beside_published(analysis.load("h200-end-to-end", pooled=False), "published").brief()
    for columns in (80, 120):
        shown = "".join(str(terminal_text(one, width=columns)) for one in shipped)
        assert shown.count("\n") <= 40 and max(map(len, shown.splitlines())) <= columns


def test_a_line_of_another_store_claims_what_that_store_gains(attempts: Attempts, tmp_path: Path) -> None:
    theirs = Attempts(tmp_path / "theirs")
    for store, seconds in ((attempts, 0.02), (theirs, 0.01)):
        store.ok(gpu(**COURSE), {"step.time": samples(seconds, 1e-5)})
    location = theirs.store.location
    (line,) = beside_published(analysis.load(attempts.store, pooled=False), location).lines
    assert (line.claim.subject, line.claim.against) == (location, "mine")
    assert line.claim.gain == pytest.approx(2, rel=1e-3)
