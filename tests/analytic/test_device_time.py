"""The time of a step from operators in closed form, without a run of the model."""

import pytest

from lmsweep.trials.analytic.datasheets import Device, find_device
from lmsweep.trials.analytic.model_operators.model_parts import model_parts, seconds_of
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.analytic.rates.step_time import StepTime, step_time
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from tests.support.measured_steps import STEPS, measured_steps, operators_of


def h100() -> Device:
    found = find_device("NVIDIA H100 80GB HBM3")
    assert found is not None
    return found


def large(**fields: object) -> TrialConfig:
    size = {name: getattr(SIZES["large"], name) for name in ("d_model", "d_ff", "num_layers", "num_heads")}
    values = {"model": "large", "context_length": 1024, "batch_size": 4, "device": "cuda"} | size | fields
    return TrialConfig(**values)  # type: ignore[arg-type]


def time_of(config: TrialConfig) -> StepTime:
    return step_time(operators_of(model_parts(config)), rates_of(h100()))


@pytest.mark.parametrize("name", STEPS)
def test_nearly_all_measured_steps_are_within_a_fifth_of_what_is_expected(name: str) -> None:
    off = [abs(expected / took - 1) for expected, took in measured_steps(name)]
    assert sum(one <= 0.2 for one in off) >= 0.9 * len(off) > 0
    assert sorted(off)[len(off) // 2] <= 0.035


def test_steps_in_float32_take_as_long_as_products_of_other_models_let_expect() -> None:
    # The rates are from profiled steps of `small` and `large` at 256 tokens.
    models = ("medium", "xl", "2.7b")
    steps = measured_steps("h100-cs336-2025", precision=("fp32",), model=models, compile=("none",))
    off = sorted(abs(expected / took - 1) for expected, took in steps if took > 0.03)
    assert len(off) >= 20 and off[len(off) // 2] <= 0.025 and off[-1] <= 0.08


def test_the_mask_of_packed_documents_costs_what_was_measured() -> None:
    # The share that a mask costs was measured on an H200, these steps on an H100.
    for expected, took in measured_steps("h100-packing", attention=("sdpa",), lengths=("1024",)):
        assert expected == pytest.approx(took, rel=0.1)
    packed = large(precision="bf16", attention="sdpa", lengths="256", batching="packed")
    names = {one.name for one in step_operators(packed)}
    assert names > {"sdpa_cudnn_masked", "sdpa_cudnn_masked_backward"}, "whatever the number of sequences"


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "bf16"},
        {"precision": "bf16", "attention": "sdpa", "lengths": "256", "batching": "packed", "compile": "block"},
        {"precision": "bf16_pure", "attention": "sdpa", "compile": "block"},
        {"precision": "bf16", "attention": "sdpa_flash", "compile": "model", "loss": "cross_entropy"},
        pytest.param({"precision": "bf16", "attention": "sdpa_math", "checkpointing": "block"}, marks=pytest.mark.slow),
        {"precision": "bf16", "attention": "flex", "lengths": "256", "batching": "packed", "loss": "compiled"},
        pytest.param({"precision": "fp8_tensorwise", "attention": "sdpa"}, marks=pytest.mark.slow),
        {"precision": "fp8_rowwise", "attention": "sdpa", "compile": "block"},
        {"precision": "bf16", "num_kv_heads": 4, "qk_norm": True, "feed_forward": "gelu", "attention": "sdpa"},
        {"precision": "bf16", "num_experts": 64, "active_experts": 8, "d_ff": 768, "attention": "sdpa"},
        {"precision": "bf16_pure", "num_experts": 64, "active_experts": 8, "d_ff": 768, "compile": "block"},
        {"precision": "bf16", "accumulate": 2, "optimizer": "adamw_foreach"},
    ],
    ids=str,
)
def test_the_operators_in_closed_form_take_as_long_as_those_of_a_run(fields: dict[str, object]) -> None:
    config = large(**fields)
    recorded, closed = step_time(step_operators(config), rates_of(h100())), time_of(config)
    assert closed.computing == pytest.approx(recorded.computing, rel=0.07)
    assert closed.launching == pytest.approx(recorded.launching, rel=0.15)


def test_the_parts_of_a_step_take_as_long_as_its_operators() -> None:
    for config in (large(precision="bf16"), large(context_length=64, batch_size=1), large(checkpointing="block")):
        for factor in (1.0, 1.3):
            whole = time_of(config).at(factor)
            assert seconds_of(model_parts(config), rates_of(h100()), factor) == pytest.approx(whole, rel=1e-9)
