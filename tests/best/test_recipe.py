"""What the answer says about using the winner can be followed: the command is the trial, the PyTorch runs."""

import shlex
from typing import Any

import pytest
import torch
from torch import nn

from lmsweep.analysis.best.recipe import LINE, pytorch_snippet, trial_command
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.identity import measurement_id, trial_id
from tests.support.made_up_results import config
from tests.support.needs import needs_chunked_loss

pytestmark = pytest.mark.usefixtures("one_core")

TINY = {"d_model": 32, "d_ff": 64, "num_layers": 4, "num_heads": 2, "vocab_size": 50, "context_length": 16}


def tiny(**fields: Any) -> TrialConfig:
    return TrialConfig(**TINY, **fields)


def models(one: TrialConfig) -> tuple[TrainingStep, nn.Module]:
    """Two training steps with the same weights: lmsweep's, and the model alone, as a reader writes it."""
    mode = set_math_mode(one.precision, "cpu")
    step = TrainingStep(one, mode)
    plain = tiny(attention=one.attention, batch_size=one.batch_size)
    reader = TrainingStep(plain, set_math_mode("fp32", "cpu")).model
    reader.load_state_dict(step.model.state_dict())
    reader.returns_hidden = one.loss == "chunked"
    return step, reader


def run(snippet: str, model: nn.Module, step: TrainingStep) -> list[float]:
    """The losses of three steps of the snippet."""
    names: dict[str, Any] = {"model": model, "inputs": step.inputs, "targets": step.targets}
    exec(snippet, names)
    return [float(names["step"](step.inputs, step.targets)) for _ in range(3)]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"precision": "bf16", "attention": "sdpa", "optimizer": "adamw_foreach"},
        {"precision": "bf16_pure", "attention": "sdpa_math", "zero_grad": "before_backward"},
        {"checkpointing": "block", "optimizer": "adamw_loop"},
        {"optimizer": "muon", "loss": "cross_entropy"},
        pytest.param({"optimizer": "sgd", "loss": "chunked"}, marks=needs_chunked_loss),
        {"optimizer": "adafactor"},
        {"checkpointing": "sqrt", "attention": "sdpa", "batch_size": 2},
        pytest.param({"compile": "block", "attention": "sdpa", "checkpointing": "block"}, marks=pytest.mark.slow),
        pytest.param({"compile": "model", "precision": "bf16"}, marks=pytest.mark.slow),
    ],
    ids=lambda fields: " ".join(map(str, fields.values())) or "defaults",
)
def test_the_snippet_trains_as_the_measured_step_does(fields):
    one = tiny(**fields)
    step, model = models(one)
    measured = []
    for _ in range(3):
        for phase in step.phases():
            phase.run()
        assert step.loss is not None
        measured.append(float(step.loss.detach()))
        step.drop()
    found = run(pytorch_snippet(one), model, step)
    assert found == pytest.approx(measured, rel=0.02 if one.precision != "fp32" else 1e-4)


def test_the_snippet_clears_gradients_where_the_step_does():
    assert pytorch_snippet(tiny()).index("zero_grad") > pytorch_snippet(tiny()).index("optimizer.step()")
    early = pytorch_snippet(tiny(zero_grad="before_backward"))
    assert early.index("zero_grad") < early.index("backward()")


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"attention": "sdpa_cudnn", "device": "cuda"}, "sdpa_kernel(SDPBackend.CUDNN_ATTENTION)"),
        ({"compile": "model", "compile_mode": "reduce-overhead", "device": "cuda"}, 'mode="reduce-overhead"'),
        ({"compile": "model", "compile_mode": "reduce-overhead", "device": "cuda"}, "cudagraph_mark_step_begin()"),
        ({"precision": "fp16", "device": "cuda"}, "scaler.scale(loss).backward()"),
        ({"precision": "tf32", "device": "cuda"}, 'set_float32_matmul_precision("high")'),
        ({"mode": "forward"}, "torch.inference_mode()"),
        ({"optimizer": "mine:Muon"}, "# optimizer: mine:Muon, your own"),
    ],
)
def test_the_snippet_for_a_gpu_names_its_kernels_and_recipes(fields, line):
    snippet = pytorch_snippet(tiny(**fields))
    assert line in snippet
    compile(snippet, "snippet", "exec")


@pytest.mark.parametrize(
    "asked",
    [
        config("small", batch_size=8, precision="bf16", device="cuda", compile="block", causal=False),
        tiny(measure_steps="auto", attention="sdpa", mode="forward"),
    ],
)
def test_the_command_is_the_trial(asked):
    command = trial_command(asked, ["timing", "memory"])
    assert max(map(len, command.splitlines())) <= LINE
    words = shlex.split(command.replace("\\\n", ""))
    assert words[:2] == ["lmsweep", "trial"]
    trial = single_trial(words[2:])
    assert (trial_id(trial.config), trial.workloads) == (trial_id(asked), ("timing", "memory"))
    assert measurement_id(trial.config, "timing") == measurement_id(asked, "timing")


def teardown_module() -> None:
    torch.set_float32_matmul_precision("highest")
