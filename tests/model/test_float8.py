"""Linear layers in float8, emulated on a CPU."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from lmsweep.trials.isolation.server import may_share_a_process
from lmsweep.trials.model.compiler import compile_model, reset_compiler
from lmsweep.trials.model.float8 import convert_to_float8, float8_product
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS
from tests.support.whole_steps import small

SMALL = small(d_model=64, d_ff=96, context_length=16, batch_size=2, attention="sdpa")
TOKENS = SMALL.batch_size * SMALL.context_length
RECIPES = [MATH_MODES[precision].float8_recipe for precision in FLOAT8_PRECISIONS]

with_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")


def step_of(recipe: str | None, **fields: object) -> TrainingStep:
    torch.manual_seed(0)
    step = TrainingStep(replace(SMALL, **fields), MATH_MODES["fp32"])
    if recipe:
        convert_to_float8(step.blocks, recipe, tokens=TOKENS, emulate=True)
    return step


def gradients(step: TrainingStep) -> Tensor:
    step.forward()
    step.backward()
    return torch.cat([weight.grad.flatten() for weight in step.model.parameters() if weight.grad is not None])


@with_torchao
@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_gradients_in_float8_are_near_those_in_full_precision_and_differ(recipe: str) -> None:
    exact, rounded = gradients(step_of(None)), gradients(step_of(recipe))
    assert 0.005 < float((rounded - exact).norm() / exact.norm()) < 0.15


@with_torchao
@pytest.mark.slow
def test_linear_layers_of_the_blocks_are_converted_in_place_and_nothing_else() -> None:
    step = step_of("tensorwise")
    kinds = {name.split(".")[-1]: type(layer).__name__ for name, layer in step.model.named_modules() if name}
    in_float8 = {name for name, kind in kinds.items() if kind == "Float8Linear"}
    assert in_float8 == {"query", "key", "value", "output", "w1", "w2", "w3"} and kinds["head"] == "Linear"
    names = [name for name, _ in step.model.named_parameters()]
    assert names == [name for name, _ in step_of(None).model.named_parameters()], "weights keep their names and order"


@with_torchao
@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_compiled_blocks_share_one_graph_without_a_break(recipe: str) -> None:
    reset_compiler()
    step = step_of(recipe)
    compile_model(step.model, step.blocks, replace(SMALL, compile="block"), "aot_eager")
    gradients(step)
    stats = torch._dynamo.utils.counters
    assert stats["stats"]["unique_graphs"] == 1 and not stats["graph_break"]
    reset_compiler()


def test_a_float8_trial_shares_no_process_because_torchao_changes_the_compiler() -> None:
    wide = Trial(config=replace(SMALL, compile="block", precision="bf16"), workloads=("timing",), sweep="test")
    assert may_share_a_process(wide)
    narrow = replace(wide, config=replace(wide.config, precision="fp8_rowwise"))
    assert not may_share_a_process(narrow)


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_a_product_in_float8_is_near_the_exact_one(recipe: str) -> None:
    torch.manual_seed(0)
    one, other = torch.randn(32, 64), torch.randn(64, 48)
    try:
        found = float8_product(one, other, recipe)()
    except RuntimeError as error:  # only GPUs measure it
        if "only supports per-tensor scaling" not in str(error):
            raise
        pytest.skip(f"PyTorch {torch.__version__} has no such product on a CPU")
    exact = one @ other
    assert found.dtype == torch.bfloat16 and found.shape == exact.shape
    assert 0.005 < float((found.float() - exact).norm() / exact.norm()) < 0.06
