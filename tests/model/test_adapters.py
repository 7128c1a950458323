"""Adapters: what is trained, and its gradients against those of merged weights in float64."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lmsweep import analysis
from lmsweep.trials.model import adapted_layers
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.without_device.step_run import record
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import RequestError, Trial, TrialConfig
from tests.support.made_up_results import Attempts, config, samples
from tests.support.whole_steps import flops_by_phase

pytest.importorskip("peft")
TINY = {"d_model": 16, "d_ff": 32, "num_layers": 2, "num_heads": 2}
TINY |= {"vocab_size": 11, "context_length": 8, "batch_size": 2}
ARGUMENTS = '{"rank": 4, "alpha": 8}'
WITH_DROPOUT = {"adapter_args": '{"rank": 4, "dropout": 0.5}'}


def step_of(**fields):
    return TrainingStep(TrialConfig(**(TINY | fields)), MATH_MODES["fp32"])


def adapted(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


def whole_weight(weight: nn.Parameter) -> torch.Tensor:
    """The weight, of one in 4 bits what bitsandbytes makes of it."""
    if not hasattr(weight, "quant_state"):
        return weight
    return pytest.importorskip("bitsandbytes").functional.dequantize_4bit(weight.data, weight.quant_state)


@pytest.mark.parametrize("checkpointing", ["block", "nested", "selective"])
def test_what_is_computed_again_has_the_dropout_of_the_first_time(checkpointing):
    found = []
    for way in ("none", checkpointing):
        torch.manual_seed(1)
        step = step_of(adapter="lora", **WITH_DROPOUT, checkpointing=way, num_layers=4)
        for layer in adapted(step.model).values():
            torch.nn.init.normal_(layer.lora_B["default"].weight)
        step.forward()
        step.backward()
        found.append([weight.grad for weight in step.model.parameters() if weight.grad is not None])
    torch.testing.assert_close(*found)


GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize(("adapter", "checkpointing"), [("lora", "block"), ("dora", "none"), ("qlora", "block")])
def test_gradients_are_those_of_merged_weights_in_float64(adapter, checkpointing, device):
    if adapter == "qlora":
        pytest.importorskip("bitsandbytes")
    step = step_of(adapter=adapter, adapter_args=ARGUMENTS, checkpointing=checkpointing, device=device)
    layers = adapted(step.model)
    with torch.no_grad():
        for layer in layers.values():
            layer.lora_B["default"].weight.normal_(std=0.1)
            for magnitude in layer.lora_magnitude_vector.parameters():
                magnitude.mul_(1.5)
    merged = step_of(device=device)
    own = dict(merged.model.named_parameters())
    sums, scales = {}, {}
    with torch.no_grad():
        for name, weight in step.model.named_parameters():
            if (plain := name.replace(".base_layer", "")) in own:
                own[plain].copy_(whole_weight(weight))
        merged.model.double()
        merged.model.blocks[0].attention.rope.double()
        for name, layer in layers.items():
            up, down = (one["default"].weight.double() for one in (layer.lora_B, layer.lora_A))
            sums[name] = own[f"{name}.weight"] + 2 * up @ down
            norms = sums[name].norm(dim=1, keepdim=True)
            magnitudes = [one.double()[:, None] for one in layer.lora_magnitude_vector.parameters()] or [norms]
            scales[name] = magnitudes[0] / norms
            own[f"{name}.weight"].copy_(scales[name] * sums[name])
    cross_entropy(merged.model(step.inputs).flatten(0, 1), step.targets.flatten()).backward()

    step.forward()
    step.backward()

    assert len(layers) == 2 * 7
    for name, layer in layers.items():
        up, down = (one["default"].weight for one in (layer.lora_B, layer.lora_A))
        whole = own[f"{name}.weight"].grad
        scaled = scales[name] * whole  # DoRA takes the norms as constants (Liu et al. 2024, section 4.3)
        expected = {up: 2 * scaled @ down.double().T, down: 2 * up.double().T @ scaled}
        for magnitude in layer.lora_magnitude_vector.parameters():
            expected[magnitude] = (whole * sums[name]).sum(1) / sums[name].norm(dim=1)
        for weight, gradient in expected.items():
            torch.testing.assert_close(weight.grad.double(), gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_memory_counts_none_of_what_packages_keep_at_their_import(runner, environment):
    asked = TrialConfig(**TINY, adapter="lora", adapter_args=ARGUMENTS)
    rows = runner.run(Trial(config=asked, workloads=("memory",), sweep="s"), fallback=environment)
    (peak,) = (one.samples for one in records_of(rows) if (one.phase, one.metric) == ("step", "peak_tensors"))
    assert {*peak} == {predict(asked).peak}


def test_autocast_trains_adapters_in_float32_beside_weights_in_bfloat16():
    config = TrialConfig(**TINY, adapter="lora", adapter_args=ARGUMENTS, precision="bf16")
    step = TrainingStep(config, MATH_MODES["bf16"])
    for phase in step.phases():
        phase.run()
    types = {(weight.dtype, weight.requires_grad) for weight in step.model.parameters()}
    assert types == {(torch.float32, True), (torch.bfloat16, False)}


def test_a_target_that_no_layer_has_is_refused_with_those_that_there_are():
    with pytest.raises(RequestError, match=r"no linear layer of the blocks is q_proj.*query, key, value, output"):
        step_of(adapter="lora", adapter_args='{"rank": 4, "targets": "q_proj"}')


@pytest.mark.parametrize("adapter", [pytest.param("lora", marks=pytest.mark.slow), "qlora"])
@pytest.mark.parametrize(
    "fields",
    [{}, pytest.param({"checkpointing": "block", "precision": "bf16", **WITH_DROPOUT}, marks=pytest.mark.slow)],
)
def test_what_stands_for_pefts_layer_on_fake_tensors_allocates_and_computes_as_it_does(adapter, fields, monkeypatch):
    usual = {"device": "cuda", "adapter": adapter, "adapter_args": ARGUMENTS}
    config = TrialConfig(**(TINY | usual | fields))
    runs = [record(config)]
    monkeypatch.setattr(adapted_layers, "FakeTensor", ())  # so nothing stands for PEFT's layers
    monkeypatch.setattr(adapted_layers, "_stored", adapted_layers.FourBitLinear)
    for _ in range(2):  # the first time, PEFT imports more
        runs.append(record(config))
    ours, theirs = runs[0], runs[2]
    assert ours.trace == theirs.trace
    assert ours.log.operators() == theirs.log.operators() and ours.log.operators()


@pytest.mark.parametrize(
    ("adapter", "arguments"),
    [("lora", '{"rank": 8, "targets": ["query", "value"]}'), ("dora", '{"rank": 8, "dropout": 0.1}')],
)
def test_flops_are_those_that_pytorch_counts_on_real_tensors(adapter: str, arguments: str) -> None:
    step = step_of(adapter=adapter, adapter_args=arguments, attention="sdpa_math")
    counts, found = flops_by_phase(step), count_flops(step.config)
    assert [found.forward, found.backward] == counts[:2]


@pytest.mark.slow
def test_four_bits_have_the_products_of_sixteen() -> None:
    lora, qlora = (count_flops(TrialConfig(**TINY, adapter=name, adapter_args=ARGUMENTS)) for name in ("lora", "qlora"))
    assert qlora == lora and lora.forward


def test_flops_are_unknown_where_no_trial_has_counted_them(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "results")
    attempts.ok(config(device="cuda", adapter="lora"), {"step.time": samples(0.01, 1e-5)})
    row = analysis.load(attempts.store).iloc[0]
    assert row[["flops", "mfu", "hfu", "tflops"]].isna().all() and row["tokens_per_second"] > 0
