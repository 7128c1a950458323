"""Roofline: rate, peak, ceiling, arithmetic intensity and roof of a training step."""

from dataclasses import replace
from typing import Any

import pytest

from lmsweep import analysis
from lmsweep.orchestrator.features.limits.roofline import roofline
from tests.support.made_up_results import Attempts, config, samples


def gpu(model: str = "small", **fields: Any) -> Any:
    return config(model, device="cuda", **fields)


def test_the_rate_of_a_step_is_compared_with_datasheet_and_measured_ceiling(attempts: Attempts) -> None:
    attempts.ok(gpu("2.7b", mode="forward_backward"), {"step.time": samples(0.5, 1e-3)})
    rates = {"matmul.flops_rate": (4e13, 5e13, 6e13), "copy.bandwidth": (4e12,) * 3}
    attempts.ok(
        replace(gpu(), d_model=16384, model=None, d_ff=None, num_layers=None, num_heads=None), rates,
        workload="ceiling", units={"matmul.flops_rate": "FLOP/s", "copy.bandwidth": "B/s"},
    )  # fmt: skip
    (row,) = roofline(analysis.load(attempts.store)).itertuples()
    tokens = 4 * 256
    per_layer = 8 * tokens * 2560**2 + 4 * tokens * 256 * 2560 + 6 * tokens * 2560 * 10240
    flops = 3 * (32 * per_layer + 2 * tokens * 2560 * 10_000)
    assert row.rate == pytest.approx(flops / 0.5)
    assert row.peak == pytest.approx(66.9e12) and row.mfu == pytest.approx(row.rate / 66.9e12)
    assert row.of_ceiling == pytest.approx(row.rate / 5e13)
    weights = 12 * 3_406_809_600
    assert row.intensity < flops / weights  # activations come on top
    assert row.roof == pytest.approx(min(5e13, row.intensity * 4e12))


def test_weights_in_bfloat16_are_compared_with_the_ceiling_of_bfloat16(attempts: Attempts) -> None:
    attempts.ok(gpu(precision="bf16_pure"), {"step.time": samples(0.5, 1e-3)})
    product = replace(gpu(precision="bf16"), d_model=16384, model=None, d_ff=None, num_layers=None, num_heads=None)
    rates = {"matmul.flops_rate": (5e14,) * 3}
    attempts.ok(product, rates, workload="ceiling", units={"matmul.flops_rate": "FLOP/s"})
    (row,) = roofline(analysis.load(attempts.store)).itertuples()
    assert row.ceiling == 5e14
