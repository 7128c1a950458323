"""QLoRA: a step with weights in 4 bits against one with the same weights dequantized, and its prediction."""

from dataclasses import replace

import pytest
import torch

from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.peak_memory import summary
from lmsweep.trials.prediction.step_family import step_family
from lmsweep.trials.spec.config import TrialConfig

pytest.importorskip("peft")
SMALL = {"d_model": 128, "d_ff": 256, "num_layers": 2, "num_heads": 2, "vocab_size": 64, "context_length": 64}
ADAPTED = {"adapter_args": '{"rank": 4}', "batch_size": 2, "mode": "train_step"}
PLACES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


@pytest.mark.parametrize("device", PLACES)
def test_gradients_of_qlora_are_those_of_lora_on_the_dequantized_weights(device):
    library = pytest.importorskip("bitsandbytes")
    precision = "fp32" if device == "cpu" else "bf16_pure"
    qlora = TrialConfig(**(SMALL | ADAPTED), adapter="qlora", device=device, precision=precision, attention="sdpa")
    stored, plain = (TrainingStep(one, MATH_MODES[precision]) for one in (qlora, replace(qlora, adapter="lora")))
    layers = dict(plain.model.named_modules())
    with torch.no_grad():
        weights = dict(plain.model.named_parameters())
        for name, weight in stored.model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.1)
            if isinstance(weight, library.nn.Params4bit):
                weight = library.functional.dequantize_4bit(weight.data, weight.quant_state)
            weights[name].copy_(weight)
    plain.inputs, plain.targets = stored.inputs, stored.targets
    for step in (stored, plain):
        step.forward()
        step.backward()

    assert stored.loss is not None and torch.isfinite(stored.loss)
    trained = {name: weight for name, weight in stored.model.named_parameters() if weight.requires_grad}
    assert len(trained) == 2 * 2 * 7 and len(layers) > len(trained)
    for name, weight in trained.items():
        assert weight.grad is not None and weights[name].grad is not None
        apart = (weight.grad - weights[name].grad).norm() / weights[name].grad.norm()
        assert apart < (1e-4 if device == "cpu" else 3e-2), name
    stored.optimize()


def test_the_peak_is_below_that_of_lora_by_the_bits_saved():
    wide = {"d_model": 1024, "d_ff": 4096, "num_layers": 8, "num_heads": 8, "vocab_size": 64, "context_length": 64}
    lora = TrialConfig(
        **(wide | ADAPTED), adapter="lora", device="cuda", precision="bf16_pure", attention="sdpa", loss="cross_entropy"
    )
    qlora = replace(lora, adapter="qlora")
    matrices = 8 * (4 * 1024**2 + 3 * 1024 * 4096)
    saved = matrices * (2 - 0.5 - 4 / 64)
    # During backward the largest weight exists once more.
    once = 2 * 1024 * 4096

    predicted = [summary(step_family(one).allocations(2), one) for one in (lora, qlora)]
    less = predicted[0].after_init - predicted[1].after_init
    assert less == pytest.approx(saved, rel=0.01)
    peaks = [one.peak for one in predicted]
    assert peaks[0] - peaks[1] <= saved + 2**20
    assert peaks[0] - peaks[1] >= saved - 4 * once
