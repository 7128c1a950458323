"""Adapters: what is trained, and its gradients against those of merged weights in float64."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import RequestError, TrialConfig

pytest.importorskip("peft")
TINY = {"d_model": 16, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 11, "context_length": 8}
ARGUMENTS = '{"rank": 4, "alpha": 8}'


def step_of(**fields):
    return TrainingStep(TrialConfig(**(TINY | {"batch_size": 2} | fields)), MATH_MODES["fp32"])


def adapted(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


@pytest.mark.parametrize("checkpointing", ["none", "block"])
def test_gradients_of_lora_are_those_of_merged_weights_in_float64(checkpointing):
    step = step_of(adapter="lora", adapter_args=ARGUMENTS, checkpointing=checkpointing)
    layers = adapted(step.model)
    for layer in layers.values():
        nn.init.normal_(layer.lora_B["default"].weight, std=0.1)
    merged = step_of()
    own = dict(merged.model.named_parameters())
    with torch.no_grad():
        for name, weight in step.model.named_parameters():
            if (plain := name.replace(".base_layer", "")) in own:
                own[plain].copy_(weight)
        for name, layer in layers.items():
            up, down = layer.lora_B["default"].weight, layer.lora_A["default"].weight
            own[f"{name}.weight"] += 2 * up @ down
    merged.model.double()
    merged.model.blocks[0].attention.rope.double()
    cross_entropy(merged.model(step.inputs).flatten(0, 1), step.targets.flatten()).backward()

    step.forward()
    step.backward()

    assert len(layers) == 2 * 7
    for name, layer in layers.items():
        up, down = (one["default"].weight for one in (layer.lora_B, layer.lora_A))
        whole = own[f"{name}.weight"].grad
        assert torch.allclose(up.grad.double(), 2 * whole @ down.double().T, rtol=1e-3, atol=1e-6)
        assert torch.allclose(down.grad.double(), 2 * up.double().T @ whole, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("adapter", ["lora", "dora"])
def test_a_step_changes_adapters_and_nothing_else(adapter):
    step = step_of(adapter=adapter, adapter_args=ARGUMENTS)
    before = {name: weight.detach().clone() for name, weight in step.model.named_parameters()}
    for _ in range(2):
        for phase in step.phases():
            phase.run()
    changed = {name for name, weight in step.model.named_parameters() if not torch.equal(weight, before[name])}
    assert changed == {name for name in before if "lora_" in name}
    assert any("magnitude" in name for name in changed) == (adapter == "dora")


def test_a_target_that_no_layer_has_is_refused_with_those_that_there_are():
    with pytest.raises(RequestError, match=r"no linear layer of the blocks is q_proj.*query, key, value, output"):
        step_of(adapter="lora", adapter_args='{"rank": 4, "targets": "q_proj"}')


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"adapter": "lora", "adapter_args": '{"rank": 64}'}, "rank is 64, above the width of the model, 16"),
        ({"adapter": "lora", "adapter_args": '{"rank": 0}'}, "it must be a whole number from 1"),
        ({"adapter": "lora", "adapter_args": '{"ranks": 4}'}, "adapter_args has no ranks; it has rank, alpha"),
    ],
)
def test_wrong_arguments_are_refused(fields, words):
    with pytest.raises(RequestError, match=words):
        TrialConfig(**(TINY | fields))
