"""What the answer says about using the winner can be followed: the command is the trial, the PyTorch runs."""

import shlex
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, get_args

import pytest
import torch
from torch import nn

from lmsweep.analysis.best.recipe import LINE, pytorch_snippet, trial_command
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.machine.torch_private import OpOverload, TorchDispatchMode
from lmsweep.trials.model.adapted_layers import use_linear_of_pytorch
from lmsweep.trials.model.precision_modes import set_math_mode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.identity import measurement_id, trial_id
from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.words import Checkpointing, ZeroGrad
from tests.support.made_up_results import config
from tests.support.needs import needs_chunked_loss

pytestmark = pytest.mark.usefixtures("one_core")

needs_adapters = pytest.mark.skipif(not find_spec("peft"), reason="PEFT is not installed")
TINY = {"d_model": 32, "d_ff": 64, "num_layers": 4, "num_heads": 2, "vocab_size": 50, "context_length": 16}


def tiny(**fields: Any) -> TrialConfig:
    return TrialConfig(**TINY, **fields)


def models(one: TrialConfig) -> tuple[TrainingStep, nn.Module]:
    """A training step of lmsweep, and the model alone, as a reader has it: of float32, without an adapter."""
    step = TrainingStep(one, set_math_mode(one.precision, "cpu"))
    plain = replace(tiny(attention=one.attention, batch_size=one.batch_size), num_layers=one.num_layers)
    reader = TrainingStep(plain, set_math_mode("fp32", "cpu")).model
    for block in reader.blocks if one.adapter != "none" else ():
        use_linear_of_pytorch(block)
    reader.returns_hidden = one.loss == "chunked"
    return step, reader


def followed(snippet: str, model: nn.Module, step: TrainingStep) -> dict[str, Any]:
    """What the snippet defines, for a model with the weights of the step."""
    names: dict[str, Any] = {"model": model, "inputs": step.inputs, "targets": step.targets}
    exec(snippet, names)
    with torch.no_grad():
        for weight, measured in zip(model.parameters(), step.model.parameters(), strict=True):
            assert (weight.dtype, weight.requires_grad) == (measured.dtype, measured.requires_grad)
            weight.copy_(measured)
    return names


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    return [weight.detach().double().clone() for weight in model.parameters()]


ON_CPU = [name for name, one in PRECISIONS.items() if one.compute_capability is None]
PLAIN = [name for name, one in OPTIMIZERS.items() if one.factory.startswith("torch.")]
RECIPES: list[dict[str, Any]] = [
    *({"checkpointing": value} for value in (*get_args(Checkpointing), "2", "3")),
    *({"optimizer": name} for name in PLAIN),
    *({"precision": name} for name in ON_CPU),
    *({"attention": name} for name in ("naive", "naive_softmax", "sdpa", "sdpa_math")),
    *({"adapter": name} for name, one in ADAPTERS.items() if one.stored_bits is None),
    *({"loss": name} for name in ("eager", "cross_entropy")),
    *({"accumulate": number, "zero_grad": order} for number in (2, 4) for order in get_args(ZeroGrad)),
    {"adapter": "lora", "precision": "bf16", "checkpointing": "2", "optimizer": "sgd"},
    {
        "adapter": "lora",
        "optimizer": "adamw_loop",
        "adapter_args": '{"rank": 4, "alpha": 8, "targets": ["query", "w1"]}',
    },
    {"checkpointing": "selective", "attention": "sdpa", "precision": "bf16", "accumulate": 2},
    {"checkpointing": "nested", "optimizer": "muon", "zero_grad": "before_backward"},
]
COMPILED: list[dict[str, Any]] = [
    {"compile": "block", "attention": "sdpa", "checkpointing": "block"},
    {"compile": "model", "precision": "bf16"},
    {"loss": "compiled"},
]


@needs_adapters
@pytest.mark.parametrize(
    "fields",
    [
        *RECIPES,
        pytest.param({"optimizer": "sgd", "loss": "chunked"}, marks=needs_chunked_loss),
        *(pytest.param(one, marks=pytest.mark.slow) for one in COMPILED),
    ],
    ids=lambda fields: " ".join(map(str, fields.values())),
)
def test_the_snippet_trains_as_the_measured_step_does(fields: dict[str, Any]) -> None:
    one = tiny(**fields)
    step, model = models(one)
    names = followed(pytorch_snippet(one), model, step)
    before = weights_of(step.model)
    losses = []
    for _ in range(2):
        losses.append(0.0)
        for phase in step.phases():
            phase.run()
            if phase.name == "forward":
                losses[-1] += float(step.mean_loss().detach())
        step.drop()
    found = [float(names["step"](step.inputs, step.targets)) for _ in range(2)]
    is_narrow = PRECISIONS[one.precision].is_narrow
    assert found == pytest.approx(losses, rel=0.02 if is_narrow else 1e-5)
    changed = 0
    for was, weight, measured in zip(before, weights_of(model), weights_of(step.model), strict=True):
        update = (measured - was).norm()
        changed += bool(update)
        rounding = 1e-7 * measured.norm()
        assert (weight - measured).norm() <= max(PRECISIONS[one.precision].update_error, 1e-2) * update + rounding
    assert changed


class Products(TorchDispatchMode):
    """Counts matrix products, also those that backward computes again."""

    count = 0

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("checkpointing", [*get_args(Checkpointing), "2", "3"])
def test_the_snippet_computes_again_what_the_measured_step_does(checkpointing: str) -> None:
    one = replace(tiny(checkpointing=checkpointing), num_layers=6)
    step, model = models(one)
    names = followed(pytorch_snippet(one), model, step)
    with Products() as measured:
        for phase in step.phases():
            phase.run()
    with Products() as found:
        names["step"](step.inputs, step.targets)
    assert found.count == measured.count > 0


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
        ({"adapter": "qlora", "precision": "bf16", "device": "cuda"}, "bitsandbytes.nn.Linear4bit("),
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
