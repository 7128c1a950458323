"""Each loss and each optimizer computes what its name says, in its own way."""

import json
import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lmsweep.orchestrator.features.ddp import timed_rank
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.memory.labels import lasting_labels
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import ATTENTION
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import WORDS, TrialConfig, UnsupportedError
from lmsweep.trials.spec.ways.attentions import ATTENTIONS
from lmsweep.trials.spec.ways.optimizers import LEARNING_RATE, OPTIMIZERS, Optimizer
from tests.support.needs import needs_chunked_loss

SMALL = TrialConfig(
    d_model=32, d_ff=48, num_layers=2, num_heads=4, vocab_size=200, context_length=16, batch_size=2, attention="sdpa"
)


class Operations(TorchDispatchMode):
    """Notes the names of the operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


def step_of(config: TrialConfig) -> TrainingStep:
    torch.manual_seed(0)
    return TrainingStep(config, MATH_MODES[config.precision])


def loss_and_gradient(config: TrialConfig) -> tuple[float, torch.Tensor]:
    step = step_of(config)
    step.forward()
    step.backward()
    assert step.loss is not None
    gradients = [weight.grad.flatten() for weight in step.model.parameters() if weight.grad is not None]
    return float(step.loss), torch.cat(gradients)


@pytest.mark.parametrize(
    "loss",
    [
        "cross_entropy",
        pytest.param("chunked", marks=needs_chunked_loss),
        pytest.param("compiled", marks=pytest.mark.slow),
    ],
)
def test_a_loss_gives_the_same_value_and_gradients(loss: str) -> None:
    value, gradient = loss_and_gradient(SMALL)
    other, of_other = loss_and_gradient(replace(SMALL, loss=loss))
    assert other == pytest.approx(value, rel=1e-5)
    torch.testing.assert_close(of_other, gradient, rtol=1e-3, atol=1e-6)


@needs_chunked_loss
def test_a_loss_changes_the_operations_that_run() -> None:
    found = {}
    for loss in ("eager", "cross_entropy", "chunked"):
        step = step_of(replace(SMALL, loss=loss))
        with Operations() as operations:
            step.forward()
        found[loss] = frozenset(operations.names)
        assert (step.logits is None) == (loss == "chunked"), "a chunked loss never holds all logits"
    assert len(set(found.values())) == 3


def of_hugging_face(folder: Path, loss: str, **described: Any) -> TrialConfig:
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps({"vocab_size": 200, "attention_dropout": 0.0, **sizes, **described}))
    use_code(code_folder(folder))
    return TrialConfig(
        model_code=f"hf:{folder}",
        context_length=16,
        batch_size=2,
        loss=loss,
        mode="forward_backward",
        attention="naive",
    )


@needs_chunked_loss
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.usefixtures("forget_code")
def test_a_chunked_loss_of_a_model_of_hugging_face_is_the_loss_of_its_logits(tmp_path: Path, tied: bool) -> None:
    config = of_hugging_face(tmp_path, "chunked", model_type="llama", tie_word_embeddings=tied)
    (whole, exact), (chunked, found) = map(loss_and_gradient, (replace(config, loss="cross_entropy"), config))
    assert chunked == pytest.approx(whole, rel=1e-5)
    torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-6)
    step = step_of(config)
    step.forward()
    assert step.logits is None, "a chunked loss never holds all logits"
    assert sum(one.flops for one in step_operators(replace(config, device="cuda")))


@needs_chunked_loss
@pytest.mark.parametrize(
    "described",
    [
        {"model_type": "gemma2", "final_logit_softcapping": 30.0, "head_dim": 8, "num_key_value_heads": 4},
        {"model_type": "cohere", "logit_scale": 0.25},
        {"model_type": "phi"},  # whose head has a bias
    ],
    ids=lambda one: one["model_type"],
)
@pytest.mark.usefixtures("forget_code")
def test_a_loss_of_hidden_states_is_refused_if_the_logits_are_more_than_a_product(
    tmp_path: Path, described: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedError, match="does more for its logits than multiply"):
        step_of(of_hugging_face(tmp_path, "chunked", **described))


def test_weights_of_16_bits_are_updated_through_copies_of_32_and_not_where_a_gradient_overflows() -> None:
    step = step_of(replace(SMALL, precision="fp16_pure"))
    exact = [torch.nn.Parameter(weight.detach().float()) for weight in step.model.parameters()]
    reference = torch.optim.AdamW(exact, lr=LEARNING_RATE)
    for overflows in (False, True, False):
        step.forward()
        step.backward()
        scale = step.scaler.get_scale()
        if overflows:
            step.model.head.weight.grad.fill_(math.inf)
        for copy, weight in zip(exact, step.model.parameters(), strict=True):
            assert weight.grad is not None and weight.dtype == weight.grad.dtype == torch.float16
            copy.grad = weight.grad.float() / scale
        step.optimize()
        if not overflows:
            reference.step()
        assert step.scaler.get_scale() == (scale / 2 if overflows else scale)
        for copy, weight in zip(exact, step.model.parameters(), strict=True):
            torch.testing.assert_close(weight, copy.half(), rtol=2e-3, atol=1e-6)
    assert {one.dtype for state in step.optimizer.state.values() for one in state.values()} == {torch.float32}
    counts = [one.numel() for one in step.model.parameters()]
    assert timed_rank.state_bytes(step.optimizer) == 12 * sum(counts) + 4 * len(counts), (
        "a copy, two moments, a count of steps"
    )


def test_weights_of_16_bits_are_predicted_with_their_copies() -> None:
    wide = {"d_model": 128, "d_ff": 512, "world_size": 2, "ddp": "naive"}
    config = replace(SMALL, precision="fp16_pure", device="cuda", **wide)
    found, single = (predict(replace(config, precision=one)) for one in ("fp16_pure", "bf16_pure"))
    weights = sum(one.nbytes for one in step_of(replace(SMALL, d_model=128, d_ff=512)).model.parameters())
    # A copy in float32, and state in float32 in place of one in 16 bits.
    assert found.step_end - single.step_end == pytest.approx(2 * weights, rel=0.01)
    names = [one.name for one in step_operators(config) if one.phase == "optimizer"]
    assert names.count("_foreach_copy_") == 2 and "_fused_adamw_" in names


@needs_chunked_loss
def test_a_chunked_loss_casts_as_autocast_does() -> None:
    value, _ = loss_and_gradient(replace(SMALL, precision="bf16"))
    other, _ = loss_and_gradient(replace(SMALL, precision="bf16", loss="chunked"))
    assert other == pytest.approx(value, rel=0.02)


def test_a_chunked_loss_is_unsupported_before_pytorch_2_13(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.nn.functional, "linear_cross_entropy", raising=False)
    with pytest.raises(UnsupportedError, match=r"needs PyTorch 2\.13 or later"):
        step_of(replace(SMALL, loss="chunked"))


@pytest.mark.parametrize("optimizer", ["sgd", "adafactor", "muon"])
def test_an_optimizer_changes_every_weight_in_a_way_of_its_own(optimizer: str) -> None:
    after = {}
    for name in (optimizer, "adamw_loop"):
        step = step_of(replace(SMALL, optimizer=name))
        before = [weight.detach().clone() for weight in step.model.parameters()]
        for phase in step.phases() * 2:
            phase.run()
        after[name] = [weight.detach() for weight in step.model.parameters()]
        assert all(not torch.equal(one, other) for one, other in zip(before, after[name], strict=True))
    assert not torch.equal(after[optimizer][-1], after["adamw_loop"][-1]) or optimizer == "muon"
    assert any(not torch.equal(one, other) for one, other in zip(*after.values(), strict=True))


def state_bytes(optimizer: str) -> int:
    step = step_of(replace(SMALL, optimizer=optimizer))
    for phase in step.phases():
        phase.run()
    assert step.optimizer is not None
    parts = [part for state in step.optimizer.state.values() for part in state.values()]
    return sum(part.nbytes for part in parts if isinstance(part, torch.Tensor))


def test_optimizers_keep_two_one_or_hardly_any_copies_of_the_weights() -> None:
    weights = sum(weight.nbytes for weight in step_of(SMALL).model.parameters())
    assert state_bytes("adamw_loop") == pytest.approx(2 * weights, rel=0.01)
    assert state_bytes("sgd") == weights
    assert weights < state_bytes("muon") < 2 * weights
    assert state_bytes("adafactor") < 0.2 * weights


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_the_memory_of_an_optimizers_state_is_predicted(optimizer: str) -> None:
    less = predict(SMALL).after_init - predict(replace(SMALL, optimizer=optimizer)).after_init
    assert less == 0, "state comes with the first step"
    difference = predict(SMALL).step_end - predict(replace(SMALL, optimizer=optimizer)).step_end
    assert difference == pytest.approx(state_bytes("adamw_fused") - state_bytes(optimizer), rel=0.01)


@pytest.mark.parametrize(
    "change", [{"loss": "chunked"}, {"loss": "compiled"}, {"optimizer": "adafactor"}, {"optimizer": "adamw_8bit"}]
)
def test_memory_that_is_not_predicted_has_a_reason(change: dict[str, str]) -> None:
    with pytest.raises(UnpredictableError, match="is not predicted"):
        predict(replace(SMALL, **change))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
@pytest.mark.parametrize("optimizer", ["adamw_8bit", "adamw_4bit"])
def test_the_memory_of_quantized_state_is_that_of_its_parts(optimizer: str) -> None:
    step = step_of(replace(SMALL, d_model=128, d_ff=192, optimizer=optimizer))
    assert step.optimizer is not None
    for weight in step.model.parameters():
        step.optimizer.state[weight] = {"exp_avg": step.optimizer._new_buffer(weight, True)}
    labels = lasting_labels(step, lambda tensor: tensor.untyped_storage().data_ptr())
    held = sum(label.bytes for label in labels.values() if label.category == "optimizer_state")
    elements = sum(weight.numel() for weight in step.model.parameters())
    bits = 8 if optimizer == "adamw_8bit" else 4
    assert elements * bits / 8 < held < elements * bits / 8 * 1.25


def test_a_new_optimizer_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMIZERS, "nadam", Optimizer(factory="torch.optim.NAdam", state_copies=2))
    nadam = replace(SMALL, optimizer="nadam")
    step = step_of(nadam)
    for phase in step.phases():
        phase.run()
    assert type(step.optimizer) is torch.optim.NAdam
    assert predict(nadam).step_end == pytest.approx(predict(SMALL).step_end, rel=0.01)


def test_every_attention_has_its_function_and_its_row() -> None:
    assert [*ATTENTION] == [*ATTENTIONS] == [*WORDS["attention"]]
