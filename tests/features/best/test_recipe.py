"""What the answer says about using the winner can be followed: the command is the trial, the PyTorch runs."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch
from torch import nn

from lmsweep.orchestrator.features.best.recipes.model_recipes import ATTENTION_CALLS
from lmsweep.orchestrator.features.best.recipes.recipe import LINE, pytorch_snippet, trial_command
from lmsweep.orchestrator.features.best.recipes.step_recipes import LOSS_CALLS
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.model.adapted_layers import use_linear_of_pytorch
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import CONFIG_FIELDS, WORDS, WORDS_OR_NUMBERS, TrialConfig, UnsupportedError
from lmsweep.trials.spec.identity import measurement_id, trial_id
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.ways.attentions import ATTENTIONS
from lmsweep.trials.spec.ways.checkpointings import CHECKPOINTINGS
from lmsweep.trials.spec.ways.losses import HIDDEN_LOSSES, LOSSES
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS, Optimizer
from lmsweep.trials.spec.words import Mode, ZeroGrad
from tests.support.made_up_results import gpu
from tests.support.operators_run import OperatorsRun

pytestmark = pytest.mark.usefixtures("one_core")

SET_UP = (
    "checkpointing", "compile", "compile_mode", "dynamic_shapes", "loss", "optimizer", "precision", "adapter",
    "adapter_args", "offload", "mode",
)  # fmt: skip
"""The fields that a snippet sets up; those of the model are the reader's."""
TINY = {"d_model": 32, "d_ff": 64, "num_layers": 4, "num_heads": 2, "vocab_size": 50, "context_length": 16}


def tiny(**fields: Any) -> TrialConfig:
    return TrialConfig(**TINY, **fields)


def models(one: TrialConfig) -> tuple[TrainingStep, nn.Module]:
    """A training step of lmsweep, and the model alone, as a reader has it: of float32, without any of the ways."""
    step = TrainingStep(one, set_math_mode(one.precision, "cpu"))
    usual = {name: CONFIG_FIELDS[name].default for name in SET_UP}
    chosen = ATTENTIONS[one.attention].kernel
    plain = replace(one, **usual, attention="sdpa" if chosen else one.attention)
    reader = TrainingStep(plain, set_math_mode("fp32", "cpu")).model
    if one.adapter != "none" and not one.model_code:
        for block in reader.blocks:
            use_linear_of_pytorch(block)
    reader.train(one.mode == "forward")  # not as the step has it
    reader.returns_hidden = one.loss in HIDDEN_LOSSES
    return step, reader


def followed(snippet: str, model: nn.Module, step: TrainingStep) -> dict[str, Any]:
    """What the snippet defines, for a model with the weights of the step, and its tables, which stay in float32."""
    names: dict[str, Any] = {"model": model, "inputs": step.inputs, "targets": step.targets}
    exec(snippet, names)
    with torch.no_grad():
        for weight, measured in zip(model.parameters(), step.model.parameters(), strict=True):
            assert (weight.dtype, weight.requires_grad) == (measured.dtype, measured.requires_grad)
            weight.copy_(measured)
        for table, measured in zip(model.buffers(), step.model.buffers(), strict=True):
            table.data = measured.clone()
        for copy, weight in zip(names.get("copies", ()), names.get("weights", ()), strict=True):
            copy.copy_(weight)
    return names


def words_of(field: str) -> tuple[str, ...]:
    return (WORDS | WORDS_OR_NUMBERS).get(field) or get_args(get_type_hints(TrialConfig)[field])


ONE_FIELD: list[dict[str, Any]] = [{name: word} for name in ("attention", *SET_UP) for word in words_of(name)]
RECIPES: list[dict[str, Any]] = [
    *(one for one in ONE_FIELD if not why_not(tiny(**one), "timing")),
    *({"checkpointing": number} for number in ("2", "3")),
    *({"accumulate": 2, "zero_grad": order} for order in get_args(ZeroGrad)),
    *({"mode": mode, "zero_grad": "before_backward", "precision": "fp16"} for mode in get_args(Mode)),
    {"attention": "flex", "mode": "forward"},
    {"adapter": "lora", "precision": "bf16", "checkpointing": "2", "optimizer": "sgd"},
    {"adapter": "dora", "precision": "bf16_pure", "accumulate": 2},
    {"adapter": "lora", "optimizer": "adamw_loop", "adapter_args": '{"rank":4,"alpha":8,"targets":["query","w1"]}'},
    {"checkpointing": "selective", "attention": "sdpa", "precision": "bf16", "accumulate": 2},
    {"checkpointing": "nested", "optimizer": "muon", "zero_grad": "before_backward"},
    {"loss": "chunked", "precision": "bf16", "tied_head": True},
    {"optimizer": "muon", "num_experts": 4, "checkpointing": "selective"},
    {"compile": "block", "attention": "sdpa", "checkpointing": "block"},
    {"compile": "block", "checkpointing": "selective", "precision": "bf16", "accumulate": 2},
    {"compile": "model", "precision": "bf16", "checkpointing": "sqrt"},
    {"compile": "block", "compile_mode": "max-autotune-no-cudagraphs", "dynamic_shapes": True},
]


@pytest.mark.parametrize(
    "fields",
    [pytest.param(one, marks=pytest.mark.slow if tiny(**one).compiles else ()) for one in RECIPES],
    ids=lambda fields: " ".join(f"{name}={value}" for name, value in fields.items()),
)
def test_the_snippet_trains_as_the_measured_step_does(fields: dict[str, Any]) -> None:
    trains_alike(tiny(**{"loss": "cross_entropy"} | fields))  # the snippet's; eager is rounded otherwise


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "forward"},
        {"checkpointing": "block", "attention": "sdpa", "blocks": "model.layers"},
        {"adapter": "lora", "precision": "bf16", "blocks": "model.layers"},
    ],
    ids=str,
)
@pytest.mark.usefixtures("forget_code")
def test_the_snippet_trains_a_model_of_hugging_face(tmp_path: Path, fields: dict[str, Any]) -> None:
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    described = {"model_type": "llama", "vocab_size": 50, "attention_dropout": 0.5, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(described))
    use_code(code_folder(tmp_path))
    trains_alike(TrialConfig(**{"loss": "cross_entropy"} | fields, model_code=f"hf:{tmp_path}", context_length=16))


PACKAGES = {
    "liger_kernel/transformers.py": """
from torch.nn.functional import cross_entropy
class LigerFusedLinearCrossEntropyLoss:
    def __call__(self, lin_weight, _input, target):
        return cross_entropy((_input @ lin_weight.T).float(), target)
""",
    "cut_cross_entropy.py": """
from torch.nn.functional import cross_entropy
def linear_cross_entropy(e, c, targets):
    return cross_entropy((e @ c.T).float(), targets)
""",
}
"""Stand-ins for packages of Triton kernels, with their names and order of arguments."""


@pytest.mark.parametrize("loss", ["liger", "cut_cross_entropy"])
def test_the_snippet_calls_the_loss_of_a_package_as_the_measured_step_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    for name, code in PACKAGES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    trains_alike(tiny(loss=loss, precision="bf16"))


def trains_alike(one: TrialConfig) -> None:
    """Fails unless the snippet, followed twice, leaves loss, weights and gradients as the measured step does."""
    try:
        step, model = models(one)
    except UnsupportedError as missing_package:
        pytest.skip(str(missing_package))
    names = followed(pytorch_snippet(one), model, step)
    before = [weight.detach().double().clone() for weight in step.model.parameters()]
    losses = []
    torch.manual_seed(0)  # of dropout
    for _ in range(2):
        losses.append(0.0)
        for phase in step.phases():
            phase.run()
            if phase.name == "forward":
                losses[-1] += float(step.mean_loss().detach())
        step.drop()
    torch.manual_seed(0)
    found = [float(names["step"](step.inputs, step.targets)) for _ in range(2)]
    assert found == pytest.approx(losses, rel=1e-5)
    changed = 0
    for was, weight, measured in zip(before, model.parameters(), step.model.parameters(), strict=True):
        update = (measured - was).norm()
        assert (weight - measured).norm() <= 2e-3 * update + 1e-7 * measured.norm()
        assert (weight.grad is None) == (measured.grad is None)
        if weight.grad is not None and measured.grad is not None:
            assert (weight.grad - measured.grad).norm() <= 1e-3 * measured.grad.norm()
        changed += bool(update)
    assert bool(changed) == (one.mode == "train_step")


def products(run: OperatorsRun) -> list[str]:
    """Matrix products, also those that backward computes again."""
    return [name for name in run.names if name in ("aten.mm.default", "aten.bmm.default")]


@pytest.mark.parametrize("checkpointing", [*CHECKPOINTINGS, "2", "3"])
def test_the_snippet_computes_again_what_the_measured_step_does(checkpointing: str) -> None:
    one = replace(tiny(checkpointing=checkpointing), num_layers=6)
    step, model = models(one)
    names = followed(pytorch_snippet(one), model, step)
    with OperatorsRun() as measured:
        for phase in step.phases():
            phase.run()
    with OperatorsRun() as found:
        names["step"](step.inputs, step.targets)
    assert len(products(found)) == len(products(measured)) > 0


def test_every_way_has_a_recipe_of_its_own():
    """Attentions and losses have rows; what sets up the others follows from the rows of the core."""
    assert (ATTENTION_CALLS.keys(), LOSS_CALLS.keys()) == (ATTENTIONS.keys(), LOSSES.keys())
    for field in (*WORDS, "precision", "checkpointing", "compile", "adapter"):
        ranks = {"world_size": 2} if field == "ddp" else {}
        words = {*words_of(field)} - {"eager"}  # PyTorch's cross_entropy stands for it
        assert len({pytorch_snippet(tiny(**{field: word, **ranks})) for word in words}) == len(words), field


def test_the_snippet_of_a_new_optimizer_needs_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMIZERS, "nadam", Optimizer(factory="torch.optim.NAdam", state_copies=2))
    assert "torch.optim.NAdam(model.parameters(), lr=0.0001)" in pytorch_snippet(tiny(optimizer="nadam"))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"step": "mine.py:step"}, "# step: mine.py:step, your own"),
        ({"attention": "sdpa_cudnn", "device": "cuda"}, "sdpa_kernel(SDPBackend.CUDNN_ATTENTION)"),
        ({"compile": "model", "compile_mode": "reduce-overhead", "device": "cuda"}, "cudagraph_mark_step_begin()"),
        ({"precision": "fp16", "device": "cuda"}, "scaler.scale(loss).backward()"),
        ({"precision": "tf32", "device": "cuda"}, 'set_float32_matmul_precision("high")'),
        ({"adapter": "qlora", "precision": "bf16", "device": "cuda"}, "bitsandbytes.nn.Linear4bit("),
    ],
)
def test_the_snippet_for_a_gpu_names_its_kernels_and_recipes(fields, line):
    snippet = pytorch_snippet(tiny(**fields))
    assert line in snippet
    compile(snippet, "snippet", "exec")


@pytest.mark.parametrize(
    "asked",
    [
        gpu(batch_size=8, precision="bf16", compile="block", causal=False),
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
