"""The device time of a step, from the datasheet and factors that were fitted to measured steps."""

import pytest

from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.roofline_time import busy_time, seconds_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from tests.support.measured_steps import STEPS, measured_steps


def h100() -> Device:
    found = find_device("NVIDIA H100 80GB HBM3")
    assert found is not None
    return found


def large(**fields: object) -> TrialConfig:
    size = {name: getattr(SIZES["large"], name) for name in ("d_model", "d_ff", "num_layers", "num_heads")}
    return TrialConfig(**({"model": "large", "context_length": 1024, "batch_size": 4} | size | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [one for one in STEPS if one != "h100-best-grid"])
def test_most_measured_steps_are_within_a_fifth_of_what_is_expected(name: str) -> None:
    near = [abs(seconds_of(parts) / took - 1) <= 0.2 for parts, took in measured_steps(name)]
    assert sum(near) >= 0.75 * len(near) > 0


def test_checkpointing_computes_forward_again() -> None:
    plain, again = (busy_time(large(checkpointing=one), h100()) for one in ("none", "block"))
    assert plain and again and plain.updating == again.updating
    assert 1.2 < again.computing / plain.computing < 1.34


def test_a_mask_spares_fused_attention_half_of_the_scores() -> None:
    long = {"context_length": 32768, "batch_size": 1, "precision": "bf16", "attention": "sdpa"}
    causal, whole = (sum(busy_time(large(causal=one, **long), h100())) for one in (True, False))
    assert 1.5 < whole / causal < 2


def test_weights_in_bfloat16_halve_the_bytes_of_the_update() -> None:
    wide, narrow = (busy_time(large(precision=one, mode="train_step"), h100()) for one in ("bf16", "bf16_pure"))
    assert wide and narrow and narrow.updating == pytest.approx(wide.updating / 2)
