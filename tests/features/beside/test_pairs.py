"""Which published number stands beside which result, and how the two are compared."""

import json
import re
from dataclasses import replace
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
from lmsweep.trials.spec.config import TrialConfig
from tests.support.command import lmsweep_here
from tests.support.made_up_results import Attempts, config, gpu, samples

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


@pytest.mark.slow
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


# Times of public benchmarks, with what was done to make them times

ALONE = TrialConfig(
    d_model=2048, num_heads=16, context_length=4096, batch_size=4, precision="fp16", attention="sdpa_flash",
    device="cuda",
)  # fmt: skip
LAYER = TrialConfig(
    model="d4096-f16384-l1-h32-gelu", d_model=4096, d_ff=16384, num_layers=1, num_heads=32, feed_forward="gelu",
    vocab_size=64, context_length=2048, batch_size=8, precision="bf16_pure", attention="sdpa",
    device="cuda", mode="forward_backward",
)  # fmt: skip
STEP = config("gpt2-xl", context_length=1024, batch_size=12, precision="bf16", compile="model", attention="sdpa",
              device="cuda", feed_forward="gelu", tied_head=True, vocab_size=50257)  # fmt: skip
LOSS = TrialConfig(d_model=4096, vocab_size=128_256, context_length=8192, batch_size=1, precision="bf16",
                   loss="liger", device="cuda")  # fmt: skip
CASES: dict[str, tuple[TrialConfig, list[dict[str, Any]]]] = {
    "attention": (ALONE, [{"causal": False}, {"num_heads": 8, "attention": "sdpa_cudnn"},
                          {"attention": "./flash.py:flash"}]),
    "timing": (LAYER, [{"precision": "fp8_tensorwise"}, {"attention": "naive_softmax"}]),  # theirs has no mask
    "loss": (LOSS, [{"loss": "cross_entropy"}, {"loss": "chunked"}, {"vocab_size": 32_000}]),
}  # fmt: skip
"""Workload -> a configuration, and what is different in others."""


@pytest.fixture(scope="module")
def of_benchmarks(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    attempts = Attempts(tmp_path_factory.mktemp("public") / "results")
    for workload, (one, changes) in CASES.items():
        for fields in ({}, *changes):
            times = {"forward.time": (1.4e-3,) * 3, "step.time": (4e-3,) * 3}
            attempts.ok(replace(one, **fields), times, workload=workload)
    for vocabulary in (50257, 10_000):
        attempts.ok(replace(STEP, vocab_size=vocabulary), {"step.time": (0.25,) * 3})
    return beside(analysis.load(attempts.store, pooled=False), "published").frame


def test_a_rate_becomes_the_time_in_which_its_flops_are_done(of_benchmarks: pd.DataFrame) -> None:
    (step,) = of_benchmarks.query("attention == 'sdpa_flash' and causal and part == 'step'").to_dict("records")
    # 294 TFLOP/s: causal, so half of 4Bs²d, and backward is 2.5 x forward.
    assert step["theirs"] == pytest.approx(3.5 * 4 * 4 * 4096**2 * 2048 / 2 / 294e12)
    assert step["source"] == "FlashAttention README figure, H100, FlashAttention-2"
    assert step["ratio"] == pytest.approx(step["theirs"] / 4e-3)
    assert set(step["theirs_flags"]) == {"from_rate", "read_off_figure"}


def test_heads_mask_and_kernel_are_those_of_the_figure(of_benchmarks: pd.DataFrame) -> None:
    others = of_benchmarks.query("workload == 'attention' and (num_heads == 8 or not causal)")
    assert set(map(tuple, others[["num_heads", "causal", "part", "source"]].to_numpy())) == {
        (16, False, "step", "FlashAttention README figure, H100, FlashAttention-2"),
        (16, False, "forward", "FlashAttention-3 forward figure, H100, FlashAttention-2"),
        (8, True, "forward", "FlashAttention-3 forward figure, H100, cuDNN"),
    }


def test_a_kernel_of_ones_own_stands_beside_all_kernels_of_the_figure(of_benchmarks: pd.DataFrame) -> None:
    own = of_benchmarks.query("attention == './flash.py:flash' and part == 'forward'")
    kernels = set(own["source"].str.rpartition(", ")[2])
    assert kernels == {"standard attention", "FlashAttention-2", "Triton", "cuDNN", "FlashAttention-3"}


def test_a_step_needs_the_vocabulary_of_the_source(of_benchmarks: pd.DataFrame) -> None:
    steps = of_benchmarks[of_benchmarks["model"] == "gpt2-xl"]
    assert len(steps) == 3 and steps["source"].str.startswith("pytorch/ao/issues/1297").all()
    assert set(steps["vocab_size"]) == {50257}


def test_a_layer_alone_stands_beside_one_layer_with_its_mask(of_benchmarks: pd.DataFrame) -> None:
    layers = of_benchmarks[of_benchmarks["model"] == LAYER.model]
    assert sorted(layers["precision"]) == ["bf16_pure"] + ["fp8_tensorwise"] * 3
    assert all("layer_alone" in flags for flags in layers["theirs_flags"])


def test_a_loss_alone_stands_beside_the_same_loss_of_the_same_vocabulary(of_benchmarks: pd.DataFrame) -> None:
    theirs = of_benchmarks[of_benchmarks["workload"] == "loss"].set_index("loss")["theirs"]
    assert theirs.to_dict() == {"liger": pytest.approx(0.1667087), "cross_entropy": pytest.approx(0.1114547)}
