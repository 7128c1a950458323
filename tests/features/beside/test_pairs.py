"""Which published number stands beside which result, and how the two are compared."""

import json
import re
from html import unescape
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lmsweep import analysis
from lmsweep.analysis.tables.terminal_table import terminal_text
from lmsweep.orchestrator.features.beside.pairs import NoCounterpartError, paired
from lmsweep.orchestrator.features.beside.side_by_side import beside
from tests.support.command import lmsweep_here
from tests.support.made_up_results import Attempts, gpu, samples

COURSE: dict[str, Any] = {"context_length": 256, "batch_size": 4, "attention": "naive", "mode": "forward_backward"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Pairs of two precisions after three warm-ups each, and of another batch size."""
    attempts = Attempts(tmp_path_factory.mktemp("pairs") / "results")
    times = {"forward.time": samples(0.01, 1e-5), "backward.time": samples(0.02, 1e-5)}
    for precision, warmup_steps in product(("tf32", "bf16"), (0, 1, 5)):
        attempts.ok(gpu(precision=precision, warmup_steps=warmup_steps, measure_steps=10, **COURSE), times)
    attempts.ok(gpu(precision="bf16", **COURSE | {"batch_size": 64}), times)
    return paired(analysis.load(attempts.store, pooled=False), "published").frame


def test_each_pair_has_its_number_its_interval_its_caveats_and_a_verdict(found: pd.DataFrame) -> None:
    forward, backward = (
        found[(found["source"] == "seed2 e2e_bf16") & (found["part"] == part)].iloc[0]
        for part in ("forward", "backward")
    )
    assert forward["theirs"] == 0.0115468 and forward["mine"] == pytest.approx(0.01)
    assert forward["theirs_low"] < forward["theirs"] < forward["theirs_high"]
    assert forward["ratio_low"] < forward["ratio"] < forward["ratio_high"]
    assert forward["ratio"] == pytest.approx(1.15468)
    assert forward["clock"] == "wall" and forward["verdict"] in ("faster", "ambiguous")
    assert forward["hardware"] == "RTX PRO 6000 WK"
    assert forward["differs"] == "not stated: warmup_steps, measure_steps, software"
    assert not forward["caveats"] and backward["caveats"] == ("backward_by_subtraction",)


def test_a_warm_up_that_is_stated_is_that_of_the_result_and_else_one_in_a_steady_state_stands_for_it(
    found: pd.DataFrame,
) -> None:
    warmups = found.set_index(["source", "part"])["warmup_steps"]
    assert warmups["seed2 e2e_no_warmup", "forward"] == 0 and warmups["seed2 e2e_warmup1", "forward"] == 1
    assert warmups.loc[[("seed2 e2e_bf16", "forward")]].tolist() == [5]


def test_another_batch_size_is_no_counterpart(found: pd.DataFrame) -> None:
    assert set(found.loc[found["source"] == "seed3 run_log_small", "batch_size"]) == {64}
    assert set(found.loc[found["source"] == "seed2 e2e_bf16", "batch_size"]) == {4}


def test_results_without_a_counterpart_are_refused(attempts: Attempts) -> None:
    attempts.ok(gpu(context_length=333), {"step.time": samples(1, 1e-3)})
    with pytest.raises(NoCounterpartError, match="small at 333"):
        paired(analysis.load(attempts.store, pooled=False), "published")


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
    shipped = beside(analysis.load("h200-end-to-end", pooled=False), "published").brief()
    for columns in (80, 120):
        shown = "".join(str(terminal_text(one, width=columns)) for one in shipped)
        assert shown.count("\n") <= 40 and max(map(len, shown.splitlines())) <= columns


def test_a_line_of_another_store_claims_what_that_store_gains(attempts: Attempts, tmp_path: Path) -> None:
    theirs = Attempts(tmp_path / "theirs")
    for store, seconds in ((attempts, 0.02), (theirs, 0.01)):
        store.ok(gpu(**COURSE), {"step.time": samples(seconds, 1e-5)})
    location = theirs.store.location
    (line,) = beside(analysis.load(attempts.store, pooled=False), location).lines
    assert (line.claim.subject, line.claim.against) == (location, "mine")
    assert line.claim.gain == pytest.approx(2, rel=1e-3)
