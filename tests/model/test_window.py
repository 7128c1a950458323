"""Sliding-window attention: what it attends to, which implementations have it, and how its FLOPs are counted."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from lmsweep import analysis
from lmsweep.trials.analytic.datasheets import find_device, peak_flops
from lmsweep.trials.analytic.flop_conventions import share_of_scores
from lmsweep.trials.model.transformer.attention_functions import attention_for
from lmsweep.trials.model.transformer.flex_attention import FLEX_BLOCK, banded_block_mask
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.workloads.attention import flags_of_phase
from tests.support.made_up_results import H200, Attempts

ALONE = TrialConfig(d_model=8, context_length=12, batch_size=2, window=4)


@pytest.mark.parametrize("name", ["naive", "naive_softmax"])
def test_a_position_attends_to_the_window_before_it(name: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 12, 8, dtype=torch.float64) for _ in range(3))
    found = attention_for(replace(ALONE, attention=name), device="cpu", dtype=torch.float64)(q, k, v)
    for i in range(12):
        seen = slice(max(0, i - 3), i + 1)
        weights = (q[:, i : i + 1] @ k[:, seen].transpose(1, 2) / 8**0.5).softmax(-1)
        torch.testing.assert_close(found[:, i : i + 1], weights @ v[:, seen])


def test_a_window_as_wide_as_the_context_is_plain_causal_attention() -> None:
    q, k, v = (torch.randn(2, 12, 8) for _ in range(3))
    wide, plain = (
        attention_for(replace(ALONE, window=window), device="cpu", dtype=torch.float32)(q, k, v)
        for window in (12, None)
    )
    torch.testing.assert_close(wide, plain)


@pytest.mark.parametrize("context", [256, 500, 1024])
@pytest.mark.parametrize("window", [1, 127, 128, 129, 300, 5000])
def test_flex_computes_the_blocks_that_the_window_reaches(context: int, window: int) -> None:
    ours = banded_block_mask(context, "cpu", window=window)
    theirs = create_block_mask(
        lambda _, __, query, key: (query >= key) & (query < key + window), None, None, context, context, device="cpu"
    )
    assert ours.BLOCK_SIZE == (FLEX_BLOCK, FLEX_BLOCK)
    for name in ("kv_num_blocks", "full_kv_num_blocks"):
        computed, expected = getattr(ours, name), getattr(theirs, name)
        if context % FLEX_BLOCK == 0:
            assert torch.equal(computed, expected), name
    assert torch.equal(ours.to_dense(), theirs.to_dense())


@pytest.mark.slow
def test_flex_gives_what_naive_gives() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 300, 16) for _ in range(3))
    config = TrialConfig(d_model=32, num_heads=2, context_length=300, batch_size=1, window=140)
    with torch.no_grad():
        found, expected = (
            attention_for(replace(config, attention=name), device="cpu", dtype=torch.float32)(q, k, v)
            for name in ("flex", "naive")
        )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_window_that_cannot_be_is_refused() -> None:
    with pytest.raises(RequestError, match="window 4 counts positions before each position; it needs causal: true"):
        replace(ALONE, causal=False)
    with pytest.raises(RequestError, match="window is 0"):
        replace(ALONE, window=0)


def test_each_convention_counts_the_scores_in_the_window() -> None:
    context, window = 1000, 100
    u = window / context
    in_it = sum(min(i + 1, window) for i in range(context))
    assert share_of_scores("model", causal=1, window=u) == pytest.approx(window * context / context**2)
    assert share_of_scores("hardware", causal=1, window=u) == pytest.approx(in_it / context**2, rel=0.001)
    assert share_of_scores("hardware", causal=1) == 0.5 and share_of_scores("hardware", causal=0) == 1


def test_rates_and_flags_count_the_window(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "results")
    base = TrialConfig(d_model=128, context_length=16384, batch_size=8, attention="flex", precision="bf16",
                       device="cuda")  # fmt: skip
    for window in (None, 1024):
        attempts.ok(replace(base, window=window), {"forward.time": (1e-3,)}, workload="attention")
    rates = analysis.load(attempts.store).set_index("window")["tflops"].to_list()
    assert rates[1] / rates[0] == pytest.approx(1024 / 16384)
    h100 = find_device("NVIDIA H200", H200.device_memory)
    assert h100 is not None
    peak = peak_flops(h100, "bf16")
    assert peak is not None
    least = 4 * 8 * 16384**2 * 128 / peak  # seconds in which all scores are computed
    assert flags_of_phase(base, "forward", [0.4 * least], h100) and not flags_of_phase(
        base, "forward", [0.6 * least], h100
    )
    windowed = replace(base, window=1024)
    assert flags_of_phase(windowed, "forward", [0.05 * least], h100)
    assert not flags_of_phase(windowed, "forward", [0.07 * least], h100)
