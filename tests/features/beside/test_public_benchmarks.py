"""Times of public benchmarks beside those of the same configuration, with what was done to make them times."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from lmsweep import analysis
from lmsweep.orchestrator.features.beside.side_by_side import beside
from lmsweep.trials.spec.config import TrialConfig
from tests.support.made_up_results import Attempts, config

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
def found(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    attempts = Attempts(tmp_path_factory.mktemp("public") / "results")
    for workload, (one, changes) in CASES.items():
        for fields in ({}, *changes):
            times = {"forward.time": (1.4e-3,) * 3, "step.time": (4e-3,) * 3}
            attempts.ok(replace(one, **fields), times, workload=workload)
    for vocabulary in (50257, 10_000):
        attempts.ok(replace(STEP, vocab_size=vocabulary), {"step.time": (0.25,) * 3})
    return beside(analysis.load(attempts.store, pooled=False), "published").frame


def test_a_rate_becomes_the_time_in_which_its_flops_are_done(found: pd.DataFrame) -> None:
    (step,) = found.query("attention == 'sdpa_flash' and causal and part == 'step'").to_dict("records")
    # 294 TFLOP/s: causal, so half of 4Bs²d, and backward is 2.5 x forward.
    assert step["theirs"] == pytest.approx(3.5 * 4 * 4 * 4096**2 * 2048 / 2 / 294e12)
    assert step["source"] == "FlashAttention README figure, H100, FlashAttention-2"
    assert step["ratio"] == pytest.approx(step["theirs"] / 4e-3)
    assert set(step["theirs_flags"]) == {"from_rate", "read_off_figure"}


def test_heads_mask_and_kernel_are_those_of_the_figure(found: pd.DataFrame) -> None:
    others = found.query("workload == 'attention' and (num_heads == 8 or not causal)")
    assert set(map(tuple, others[["num_heads", "causal", "part", "source"]].to_numpy())) == {
        (16, False, "step", "FlashAttention README figure, H100, FlashAttention-2"),
        (16, False, "forward", "FlashAttention-3 forward figure, H100, FlashAttention-2"),
        (8, True, "forward", "FlashAttention-3 forward figure, H100, cuDNN"),
    }


def test_a_kernel_of_ones_own_stands_beside_all_kernels_of_the_figure(found: pd.DataFrame) -> None:
    own = found.query("attention == './flash.py:flash' and part == 'forward'")
    kernels = set(own["source"].str.rpartition(", ")[2])
    assert kernels == {"standard attention", "FlashAttention-2", "Triton", "cuDNN", "FlashAttention-3"}


def test_a_step_needs_the_vocabulary_of_the_source(found: pd.DataFrame) -> None:
    steps = found[found["model"] == "gpt2-xl"]
    assert len(steps) == 3 and steps["source"].str.startswith("pytorch/ao/issues/1297").all()
    assert set(steps["vocab_size"]) == {50257}


def test_a_layer_alone_stands_beside_one_layer_with_its_mask(found: pd.DataFrame) -> None:
    layers = found[found["model"] == LAYER.model]
    assert sorted(layers["precision"]) == ["bf16_pure"] + ["fp8_tensorwise"] * 3
    assert all("layer_alone" in flags for flags in layers["theirs_flags"])


def test_a_loss_alone_stands_beside_the_same_loss_of_the_same_vocabulary(found: pd.DataFrame) -> None:
    theirs = found[found["workload"] == "loss"].set_index("loss")["theirs"]
    assert theirs.to_dict() == {"liger": pytest.approx(0.1667087), "cross_entropy": pytest.approx(0.1114547)}
