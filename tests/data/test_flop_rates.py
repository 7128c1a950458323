"""Rates of FLOPs by both conventions: what each counts, where a table says so, and rates above the peak."""

from dataclasses import replace
from typing import Any

import pytest

from lmsweep import analysis
from lmsweep.analysis.data.selection import how_counted
from lmsweep.analysis.presets import make_preset, presets
from lmsweep.trials.analytic.formulas import attention_flops, forward_flops
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import RequestError, TrialConfig
from tests.support.command import answer_here, lmsweep_here
from tests.support.made_up_results import H200, Attempts, config, samples

SHAPE = {"context_length": 512, "batch_size": 4}


def alone(**fields: Any) -> TrialConfig:
    return TrialConfig(device="cuda", precision="bf16", d_model=2048, num_heads=16, **fields)


def flops(attempts: Attempts, convention: Any) -> dict[str, float]:
    frame = analysis.load(attempts.store, flops=convention)
    return dict(zip(frame["phase"], frame["flops"], strict=True))


@pytest.mark.parametrize(("causal", "share"), [(True, 0.5), (False, 1)])
def test_hardware_counts_causal_attention_as_half_and_its_backward_as_two_and_a_half(
    attempts: Attempts, causal: bool, share: float
) -> None:
    times = {f"{phase}.time": samples(0.01, 1e-5) for phase in ("forward", "backward", "step")}
    attempts.ok(alone(causal=causal, attention="sdpa_flash", **SHAPE), times, workload="attention")
    once = attention_flops(phase="forward", d_model=2048, **SHAPE)
    assert flops(attempts, "model") == {"forward": once, "backward": 2 * once, "step": 3 * once}
    counted = {"forward": once * share, "backward": 2.5 * once * share, "step": 3.5 * once * share}
    assert flops(attempts, "hardware") == counted


@pytest.mark.parametrize(
    ("mode", "passes", "of_attention"),
    [("train_step", 3, 3.5), ("forward_backward", 3, 3.5), ("forward", 1, 1), ("train_forward", 1, 1)],
)
def test_of_a_whole_model_only_attention_is_counted_otherwise(
    attempts: Attempts, mode: str, passes: int, of_attention: float
) -> None:
    trial = config(device="cuda", mode=mode, **SHAPE)
    attempts.ok(trial, {"step.time": samples(0.01, 1e-5)})
    size = {name: getattr(trial, name) for name in ("d_model", "d_ff", "num_layers", "vocab_size")}
    whole = forward_flops(**size, **SHAPE)
    attention = trial.num_layers * attention_flops(phase="forward", d_model=trial.d_model, **SHAPE)
    assert flops(attempts, "model")["step"] == passes * whole
    assert flops(attempts, "hardware")["step"] == passes * (whole - attention) + of_attention * attention / 2


def test_the_title_says_how_flops_are_counted(attempts: Attempts) -> None:
    attempts.ok(config(device="cuda"), {"step.time": samples(0.01, 1e-5)})
    location = attempts.store.location
    shown = lmsweep_here("table", location, "--value", "step.mfu")
    assert "FLOPs: model convention (causal attention counted in full" in shown
    shown = lmsweep_here("table", location, "--value", "step.tflops", "--flops", "hardware")
    assert "FLOPs: hardware convention (causal attention counted as half" in shown
    assert "FLOPs:" not in lmsweep_here("table", location)
    for name in ("roofline", "scaling"):
        assert presets()[name].counts_flops
    assert "hardware convention" in lmsweep_here("table", location, "--preset", "roofline", "--flops", "hardware")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"window": 64}, True),
        ({"lengths": "64", "batching": "packed"}, True),
        ({"model": "m", "model_code": "hf:./gemma.json", "vocab_size": 512}, True),
        ({}, False),
    ],
    ids=str,
)
def test_a_title_says_if_pairs_outside_a_window_count(attempts: Attempts, fields: dict[str, Any], said: bool) -> None:
    times = {"forward.time": samples(0.01, 1e-5), "forward.flops": (4e9,)}
    attempts.ok(replace(config(device="cuda", **SHAPE), **fields), times, units={"forward.flops": "FLOP"})
    assert ("outside a window" in how_counted(analysis.load(attempts.store))) == said
    hardware = how_counted(analysis.load(attempts.store, flops="hardware"))
    assert ("outside a window" in hardware) == ("model_code" in fields), "which count none, where they are known"


def test_a_model_of_the_users_own_is_counted_by_the_model_convention_whatever_is_asked_for(attempts: Attempts) -> None:
    values = {"forward.time": samples(0.01, 1e-5), "forward.flops": (4e9,)}
    own = replace(config(**SHAPE), model="mine", model_code="mine.py:Model", vocab_size=512, context_length=512)
    attempts.ok(own, values, units={"forward.flops": "FLOP"})
    (row,) = analysis.load(attempts.store, flops="hardware").query("metric == 'time'").itertuples()
    assert row.flops == 4e9 and row.flops_convention == "model"
    frame = analysis.load(attempts.store, flops="hardware")
    assert "hardware" not in how_counted(frame)
    attempts.ok(config(**SHAPE), values)
    title = how_counted(analysis.load(attempts.store, flops="hardware"))
    assert "hardware convention" in title and title.endswith("models of your own by the model convention")


def test_a_convention_that_changes_nothing_is_refused(attempts: Attempts) -> None:
    attempts.ok(config(device="cuda"), {"step.time": samples(0.01, 1e-5)})
    with pytest.raises(RequestError, match="--flops hardware: the table cost shows no rate of FLOPs; these do: roof"):
        make_preset("cost", attempts.store, flops="hardware")
    assert "add --value step.tflops" in answer_here("table", attempts.store.location, "--flops", "hardware").stderr


def forward_in(attempts: Attempts, card: Fingerprint, flops_rate: float, **fields: Any) -> str:
    """The table of a forward pass of attention in bfloat16 at this rate."""
    shape = {"context_length": 16384, "batch_size": 1}
    seconds = attention_flops(phase="forward", d_model=2048, **shape) / flops_rate
    times = {"forward.time": samples(seconds, seconds / 1000)}
    trial, in_bf16 = alone(attention="sdpa_flash", **shape, **fields), replace(card, parameter_dtype="bfloat16")
    attempts.ok(trial, times, workload="attention", fingerprint=in_bf16)
    return lmsweep_here("table", attempts.store.location, "--value", "forward.mfu")


def test_a_rate_above_the_peak_is_marked(attempts: Attempts) -> None:
    """FlashAttention skips what a causal mask hides, so the model convention can exceed the peak: 0.99 PFLOP/s."""
    assert "above_peak: The rate is above the peak" in forward_in(attempts, H200, 1.2e15, causal=True)
    by_hardware = lmsweep_here("table", attempts.store.location, "--value", "forward.mfu", "--flops", "hardware")
    assert "above_peak" not in by_hardware


def test_a_rate_that_a_card_reaches_at_its_own_clock_is_not_marked(attempts: Attempts) -> None:
    """Users measured 242 TFLOP/s on an RTX 5090, whose datasheet has 209.5 at its boost clock."""
    card = replace(H200, device_name="NVIDIA GeForce RTX 5090", device_memory=33_660_000_000)
    shown = forward_in(attempts, card, 242e12, causal=False)
    assert "116" in shown and "above_peak" not in shown
