"""Times of public benchmarks beside those of the same configuration, with what was done to make them times."""

from dataclasses import replace

import pandas as pd
import pytest

from lmsweep import analysis
from lmsweep.orchestrator.features.beside.side_by_side import beside
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.results.flag_meanings import CAVEATS, CONDITIONS
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from tests.support.made_up_results import H200, Attempts, config
from tests.support.published_numbers import public_benchmarks

ALONE = TrialConfig(
    d_model=2048, num_heads=16, context_length=4096, batch_size=4, precision="fp16", attention="sdpa_flash",
    device="cuda",
)  # fmt: skip
TIMES = {"forward.time": (1.4e-3,) * 3, "step.time": (4e-3,) * 3}


def lines(attempts: Attempts) -> pd.DataFrame:
    return beside(analysis.load(attempts.store, pooled=False), "published").frame


def alone(attempts: Attempts, **fields: object) -> None:
    attempts.ok(replace(ALONE, **fields), TIMES, workload="attention", fingerprint=replace(H200))


def test_a_rate_becomes_the_time_in_which_its_flops_are_done(attempts: Attempts) -> None:
    alone(attempts)
    (step,) = lines(attempts).query("part == 'step'").to_dict("records")
    # 294 TFLOP/s: causal, so half of 4Bs²d, and backward is 2.5 x forward.
    assert step["theirs"] == pytest.approx(3.5 * 4 * 4 * 4096**2 * 2048 / 2 / 294e12)
    assert step["source"] == "FlashAttention README figure, H100, FlashAttention-2"
    assert step["ratio"] == pytest.approx(step["theirs"] / 4e-3)
    assert set(step["theirs_flags"]) == {"from_rate", "read_off_figure"}


def test_heads_mask_and_kernel_are_those_of_the_figure(attempts: Attempts) -> None:
    alone(attempts, causal=False)
    alone(attempts, num_heads=8, attention="sdpa_cudnn")
    found = lines(attempts)[["num_heads", "causal", "part", "source"]]
    assert set(map(tuple, found.to_numpy())) == {
        (16, False, "step", "FlashAttention README figure, H100, FlashAttention-2"),
        (16, False, "forward", "FlashAttention-3 forward figure, H100, FlashAttention-2"),
        (8, True, "forward", "FlashAttention-3 forward figure, H100, cuDNN"),
    }


def test_a_kernel_of_ones_own_stands_beside_all_kernels_of_the_figure(attempts: Attempts) -> None:
    alone(attempts, attention="./flash.py:flash")
    kernels = set(lines(attempts).query("part == 'forward'")["source"].str.rpartition(", ")[2])
    assert kernels == {"standard attention", "FlashAttention-2", "Triton", "cuDNN", "FlashAttention-3"}


def test_a_step_needs_the_vocabulary_of_the_source(attempts: Attempts) -> None:
    step = config("gpt2-xl", context_length=1024, batch_size=12, precision="bf16", compile="model", attention="sdpa",
                  device="cuda", feed_forward="gelu", tied_head=True)  # fmt: skip
    attempts.ok(replace(step, vocab_size=50257), {"step.time": (0.25,) * 3})
    found = lines(attempts)
    assert len(found) == 3 and found["source"].str.startswith("pytorch/ao/issues/1297").all()
    attempts.ok(replace(step, vocab_size=10_000), {"step.time": (0.2,) * 3})
    assert len(lines(attempts)) == 3


def test_a_layer_alone_stands_beside_one_layer_with_its_mask(attempts: Attempts) -> None:
    layer = TrialConfig(
        model="d4096-f16384-l1-h32-gelu", d_model=4096, d_ff=16384, num_layers=1, num_heads=32, feed_forward="gelu",
        vocab_size=64, context_length=2048, batch_size=8, precision="bf16_pure", attention="sdpa",
        device="cuda", mode="forward_backward",
    )  # fmt: skip
    attempts.ok(layer, {"step.time": (0.04,) * 3})
    attempts.ok(replace(layer, precision="fp8_tensorwise"), {"step.time": (0.03,) * 3})
    attempts.ok(replace(layer, attention="naive_softmax"), {"step.time": (0.05,) * 3})  # theirs has no mask
    found = lines(attempts)
    assert sorted(found["precision"]) == ["bf16_pure"] + ["fp8_tensorwise"] * 3
    assert all("layer_alone" in flags for flags in found["theirs_flags"])


def test_a_loss_alone_stands_beside_the_same_loss_of_the_same_vocabulary(attempts: Attempts) -> None:
    head = TrialConfig(d_model=4096, vocab_size=128_256, context_length=8192, batch_size=1, precision="bf16",
                       loss="liger", device="cuda")  # fmt: skip
    for fields in ({}, {"loss": "cross_entropy"}, {"loss": "chunked"}, {"vocab_size": 32_000}):
        attempts.ok(replace(head, **fields), {"step.time": (0.1,) * 3}, workload="loss")
    found = lines(attempts).set_index("loss")["theirs"]
    assert found.to_dict() == {"liger": pytest.approx(0.1667087), "cross_entropy": pytest.approx(0.1114547)}


def test_every_rate_of_attention_is_below_the_peak_of_its_device_and_every_model_is_a_size() -> None:
    table = public_benchmarks()
    h100 = find_device("NVIDIA H100 80GB HBM3")
    assert h100 and len(table) == 256
    rates = table[table["workload"] == "attention"]
    assert rates["hardware"].eq("H100 80GB SXM5").all() and (rates["printed"] * 1e12 < h100.fp16).all()
    assert set(table["model"].dropna()) <= {*SIZES, "d4096-f16384-l1-h32-gelu"}
    assert not set(CONDITIONS) & set(CAVEATS) and table[[name for name in CONDITIONS if name != "inferred"]].any().all()
