"""Ways to do the work of a step: what each executes and keeps, and what it leaves as it is."""

import json
import math
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from lmsweep.orchestrator.features.ddp import timed_rank
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.memory.labels import lasting_labels
from lmsweep.trials.model.compiler import reset_compiler
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.prediction.without_device.fake_device import UnpredictableError
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError, word_or_number
from lmsweep.trials.spec.ways.optimizers import LEARNING_RATE
from lmsweep.trials.timing.clock import HostClock, phase_names, time_iteration
from tests.analytic.test_formulas import bytes_kept
from tests.support.needs import needs_chunked_loss
from tests.support.operators_run import OperatorsRun
from tests.support.whole_steps import small

pytestmark = pytest.mark.usefixtures("one_core")

CONFIG = small(d_model=32, d_ff=48, num_layers=4, context_length=8, batch_size=2)


def step_of(config: TrialConfig = CONFIG, *, backend: Any = "eager", **fields: Any) -> TrainingStep:
    reset_compiler()
    torch.manual_seed(0)
    config = replace(config, **fields)
    return TrainingStep(config, set_math_mode(config.precision, "cpu"), backend=backend)


def run(step: TrainingStep) -> None:
    for phase in step.phases():
        phase.run()
    step.drop()


def test_the_optimizer_is_one_kernel_or_lists_of_tensors_or_a_loop():
    found = []
    for name in ("adamw_fused", "adamw_foreach", "adamw_loop"):
        with OperatorsRun() as seen:
            run(step_of(optimizer=name))
        found.append(Counter(one.split(".")[1] for one in seen.names))
    fused, foreach, loop = found
    assert fused["_fused_adamw_"] == 1
    assert foreach["_foreach_addcdiv_"] and not foreach["addcdiv_"]
    assert loop["addcdiv_"] == sum(1 for _ in step_of().model.parameters())


def test_compile_captures_nothing_or_a_block_or_the_model_and_its_mode_reaches_the_compiler():
    nodes: dict[str, list[int]] = {"none": [], "block": [], "model": []}
    heard: list[str] = []
    for scope, seen in nodes.items():

        def backend(graph: torch.fx.GraphModule, inputs: Any, mode: str = "default", seen: Any = seen) -> Any:
            seen.append(sum(node.op == "call_function" for node in graph.graph.nodes))
            heard.append(mode)
            return graph.forward

        run(step_of(num_layers=2, compile=scope, compile_mode="max-autotune", backend=backend))
    assert nodes["none"] == [] and len(nodes["block"]) == len(nodes["model"]) == 1
    assert nodes["model"][0] > 2 * nodes["block"][0]
    assert heard == ["max-autotune"] * 2


# Checkpointing


def saved_bytes(checkpointing: str) -> int:
    return bytes_kept(step_of(checkpointing=checkpointing, mode="forward_backward"))


def test_groups_of_blocks_keep_less_than_blocks_and_nested_ones_no_more():
    assert saved_bytes("sqrt") == saved_bytes("2") < saved_bytes("block") < saved_bytes("none") / 2
    assert saved_bytes("nested") == saved_bytes("sqrt")
    assert word_or_number("checkpointing", 1) == "block", "one identifier for one step"


@pytest.mark.parametrize(
    ("checkpointing", "scope"),
    [
        *(("block", "none"), ("2", "none"), ("nested", "none")),
        # The model of Hugging Face below is compiled in CI.
        *(pytest.param(name, "block", marks=pytest.mark.slow) for name in ("block", "3", "nested", "selective")),
        pytest.param("selective", "model", marks=pytest.mark.slow),
    ],
)
def test_checkpointing_leaves_the_gradients_as_they_are(checkpointing: str, scope: str):
    ways: tuple[dict[str, Any], ...] = ({}, {"checkpointing": checkpointing, "compile": scope})
    gradients = [gradients_of(CONFIG, torch.float64, **fields) for fields in ways]
    assert counters["stats"]["unique_graphs"] == (scope != "none") and not counters["graph_break"]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-15)


def gradients_of(config: TrialConfig, dtype: torch.dtype, **fields: Any) -> list[torch.Tensor]:
    step = step_of(replace(config, mode="forward_backward"), backend="aot_eager", **fields)
    step.model.to(dtype)
    torch.manual_seed(1)
    step.inputs = torch.randint(50, step.inputs.shape)
    step.forward()
    step.backward()
    found = [weight.grad for weight in step.model.parameters()]
    assert all(one is not None and one.dtype == dtype for one in found)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("forget_code")
def test_layers_of_a_model_of_hugging_face_are_compiled_with_the_products_that_they_keep(tmp_path: Path) -> None:
    config = of_hugging_face(tmp_path, "eager", model_type="llama", num_hidden_layers=3)
    ways: tuple[dict[str, Any], ...] = ({}, {"checkpointing": "selective", "compile": "block"})
    gradients = [gradients_of(config, torch.float32, **fields) for fields in ways]
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-7)


SIX = small(batch_size=6, zero_grad="after_step")


@pytest.mark.parametrize(("accumulate", "zero_grad"), [(2, "after_step"), (6, "before_backward")])
def test_micro_batches_leave_the_weights_of_the_whole_batch(accumulate: int, zero_grad: str):
    weights = []
    for parts in (1, accumulate):
        step = step_of(SIX, zero_grad=zero_grad, accumulate=parts)
        for _ in range(3):
            run(step)
        weights.append([weight.detach() for weight in step.model.parameters()])
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-6)


def test_forward_and_backward_of_all_micro_batches_are_one_phase_each():
    phases = step_of(SIX, accumulate=3).phases()
    assert [phase.name for phase in phases] == ["forward", "backward"] * 3 + ["optimizer"]
    assert phase_names(phases) == ("forward", "backward", "optimizer")
    assert len(time_iteration(phases, HostClock()).phases) == 3


SMALL = replace(CONFIG, num_layers=2, num_heads=4, vocab_size=200, context_length=16, attention="sdpa")


def loss_and_gradient(config: TrialConfig) -> tuple[float, torch.Tensor]:
    step = step_of(config)
    step.forward()
    step.backward()
    gradients = [weight.grad.flatten() for weight in step.model.parameters() if weight.grad is not None]
    return float(step.loss), torch.cat(gradients)


def of_hugging_face(folder: Path, loss: str, **described: Any) -> TrialConfig:
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps({"vocab_size": 200, "attention_dropout": 0.0, **sizes, **described}))
    use_code(code_folder(folder))
    ways: dict[str, Any] = {"loss": loss, "mode": "forward_backward", "attention": "naive"}
    return TrialConfig(model_code=f"hf:{folder}", context_length=16, batch_size=2, **ways)


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
def test_a_loss_of_hidden_states_needs_logits_that_are_a_product(tmp_path: Path, described: dict[str, Any]) -> None:
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
    state = 12 * sum(counts) + 4 * len(counts)
    assert timed_rank.state_bytes(step.optimizer) == state, "a copy, two moments, a count of steps"
    assert predict(step.config).step_end == pytest.approx(2 * sum(counts) + state, rel=0.02)


def optimizer_bytes(optimizer: str) -> int:
    step = step_of(replace(SMALL, optimizer=optimizer))
    run(step)
    parts = [part for state in step.optimizer.state.values() for part in state.values()]
    return sum(part.nbytes for part in parts if isinstance(part, torch.Tensor))


def test_optimizers_keep_two_one_or_hardly_any_copies_of_the_weights_and_that_is_predicted() -> None:
    weights = sum(weight.nbytes for weight in step_of(SMALL).model.parameters())
    assert optimizer_bytes("adamw_loop") == pytest.approx(2 * weights, rel=0.01)
    assert optimizer_bytes("sgd") == weights
    assert weights < optimizer_bytes("muon") < 2 * weights
    assert optimizer_bytes("adafactor") < 0.2 * weights
    usual, muon = predict(SMALL), predict(replace(SMALL, optimizer="muon"))
    assert usual.after_init == muon.after_init, "state comes with the first step"
    less = optimizer_bytes("adamw_fused") - optimizer_bytes("muon")
    assert usual.step_end - muon.step_end == pytest.approx(less, rel=0.01)


@pytest.mark.usefixtures("forget_code")
def test_muon_updates_the_matrices_of_the_layers_of_any_model(tmp_path: Path) -> None:
    config = of_hugging_face(tmp_path, "eager", model_type="llama")
    step = step_of(replace(config, mode="train_step", optimizer="muon"))
    matrices, others = (part.param_groups[0]["params"] for part in step.optimizer.parts)
    in_layers = [one for name, one in step.model.named_parameters() if "layers." in name and one.dim() == 2]
    assert set(map(id, matrices)) == set(map(id, in_layers))
    assert len(matrices) + len(others) == len([*step.model.parameters()])


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
    for weight in step.model.parameters():
        step.optimizer.state[weight] = {"exp_avg": step.optimizer._new_buffer(weight, True)}
    labels = lasting_labels(step, lambda tensor: tensor.untyped_storage().data_ptr())
    held = sum(label.bytes for label in labels.values() if label.category == "optimizer_state")
    elements = sum(weight.numel() for weight in step.model.parameters())
    bits = 8 if optimizer == "adamw_8bit" else 4
    assert elements * bits / 8 < held < elements * bits / 8 * 1.25
