"""Scaling and roofline: exponents of growth, the largest sizes that fit, and rates beside the ceilings of a device."""

import pandas as pd
import pytest

from lmsweep import analysis
from lmsweep.analysis.presets import make_preset
from lmsweep.orchestrator.features.limits.roofline import roofline
from lmsweep.orchestrator.features.limits.scaling import frontier, scaling
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.words import Precision
from tests.support.made_up_results import Attempts, gpu, samples
from tests.support.trial_here import run_here


def test_a_power_law_is_found_with_its_exponent(attempts: Attempts) -> None:
    for context_length in (128, 256, 512, 1024):
        attempts.ok(gpu(context_length=context_length), {"step.time": samples(1e-6 * context_length**1.5, 1e-9)})
    (line,) = scaling(analysis.load(attempts.store)).itertuples()
    assert line.along == "context_length" and (line.least, line.most, line.points) == (128, 1024, 4)
    assert line.exponent == pytest.approx(1.5) and line.exponent_high - line.exponent_low < 1e-6
    assert 1 < line.flops_exponent < 1.3


def test_the_frontier_is_between_what_ran_and_what_did_not_fit(attempts: Attempts) -> None:
    for context_length, status in ((128, "ok"), (256, "ok"), (512, "oom"), (1024, "predicted_oom")):
        trial = gpu("xl", context_length=context_length)
        if status == "ok":
            attempts.ok(trial, {"step.time": samples(1, 0.1)})
        else:
            attempts.failed(trial, status)
    attempts.failed(gpu("2.7b", context_length=128), "oom")
    rows = frontier(analysis.load(attempts.store)).itertuples()
    found = {(row.model, row.along): (row.largest_ok, row.smallest_oom) for row in rows}
    assert found["xl", "context_length"] == (256, 512)
    assert found["2.7b", "context_length"][0] is pd.NA
    text = analysis.render(make_preset("frontier", attempts.store), "text")
    assert "xl" in text and "512" in text


def test_the_rates_of_a_ceiling_are_the_work_over_the_time() -> None:
    words = ["workloads=ceiling", "d_model=128", "precision=bf16", "warmup_steps=1", "measure_steps=3"]
    rows = records_of(run_here(single_trial(words)))
    assert {(row.status, row.fingerprint.parameter_dtype) for row in rows} == {("ok", "bfloat16")}
    found = {f"{row.phase}.{row.metric}": row.samples or () for row in rows}
    assert found["matmul.flops_rate"] == pytest.approx([2 * 128**3 / one for one in found["matmul.time"]])
    moved = 2 * 2 * 128**2  # 2 bytes each, read and written
    assert found["copy.bandwidth"] == pytest.approx([moved / one for one in found["copy.time"]])


def ceiling_of(attempts: Attempts, precision: Precision, rates: dict[str, tuple[float, ...]]) -> None:
    config = TrialConfig(d_model=16384, precision=precision, device="cuda")
    attempts.ok(config, rates, workload="ceiling", units={"matmul.flops_rate": "FLOP/s", "copy.bandwidth": "B/s"})


def test_the_rate_of_a_step_is_compared_with_datasheet_and_measured_ceiling(attempts: Attempts) -> None:
    attempts.ok(gpu("2.7b", mode="forward_backward"), {"step.time": samples(0.5, 1e-3)})
    ceiling_of(attempts, "fp32", {"matmul.flops_rate": (4e13, 5e13, 6e13), "copy.bandwidth": (4e12,) * 3})
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
    ceiling_of(attempts, "bf16", {"matmul.flops_rate": (5e14,) * 3})
    (row,) = roofline(analysis.load(attempts.store)).itertuples()
    assert row.ceiling == 5e14
