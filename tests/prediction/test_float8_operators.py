"""The operators of a step in float8: its casts, where they are, and those that torchao runs."""

from collections import Counter
from importlib.util import find_spec
from math import prod
from typing import Any

import pytest

from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.prediction.step_operators import operators_of_batch, step_operators
from lmsweep.trials.prediction.without_device.step_run import step_run
from tests.support.whole_steps import five_layers as small
from tests.support.whole_steps import totals

pytestmark = pytest.mark.usefixtures("one_core")


def test_float8_multiplies_in_blocks_alone() -> None:
    narrow, wide = (step_operators(small(precision=name, attention="sdpa")) for name in ("fp8_rowwise", "bf16"))
    assert totals(narrow).flops == totals(wide).flops
    scaled = [one for one in narrow if one.name == "_scaled_mm"]
    assert scaled and all(one.module.startswith("blocks.*") and one.dtype == "float8_e4m3fn" for one in scaled)


def in_blocks(operators: Operators, phase: str, **wanted: Any) -> list[Any]:
    """The operators of a layer, each as often as it runs there."""
    found = [one for one in operators if ".*" in one.module and one.phase == phase]
    chosen = [one for one in found if all(getattr(one, name) == value for name, value in wanted.items())]
    return [one for one in chosen for _ in range(one.count // 5)]


@pytest.mark.parametrize(("precision", "casts", "copies"), [("fp8_tensorwise", 4, 3), ("fp8_rowwise_gw_hp", 2, 1)])
def test_eager_float8_rounds_both_operands_and_copies_for_backward(precision: str, casts: int, copies: int) -> None:
    found = step_operators(small(precision=precision, attention="sdpa"))
    layers = 7  # query, key, value, output and three of the feed-forward
    assert len(in_blocks(found, "forward", name="abs")) == 2 * layers
    assert len(in_blocks(found, "backward", name="abs")) == casts * layers
    assert len(in_blocks(found, "backward", name="clone", dtype="float8_e4m3fn")) == copies * layers
    assert not in_blocks(found, "forward", name="clone", dtype="float8_e4m3fn")
    weights = {(64, 64), (96, 64), (64, 96)}
    cast = [one for one in in_blocks(found, "forward", name="_to_copy", dtype="float32") if one.shapes[0] in weights]
    assert not cast, "torchao rounds float32 weights, which autocast does not cast before"


@pytest.mark.parametrize("precision", ["fp8_tensorwise", "fp8_rowwise_gw_hp"])
def test_a_layer_of_as_many_outputs_as_tokens_is_multiplied_as_at_other_batches(precision: str) -> None:
    square, other = (
        Counter(one.name for one in in_blocks(operators_of_batch(config), "backward"))
        for config in (small(precision=precision, attention="sdpa", batch_size=batch) for batch in (2, 4))
    )
    assert square == other, "a batch of 2 has 64 tokens, the model a width of 64"


def test_compiled_float8_finds_a_scale_once_for_operands_that_layers_share() -> None:
    found = step_operators(small(precision="fp8_tensorwise", attention="sdpa", compile="block"))
    reads = 2 * 4 * 32 * 64  # of the input of the layers
    largest = [one for one in in_blocks(found, "forward", name="fused", dtype="bfloat16") if one.bytes == reads + 4]
    assert len(largest) == 3, "query, key and value share an input, so do two of the feed-forward's layers"
    again = in_blocks(found, "backward", name="fused", dtype="float32")
    assert not [one for one in again if one.bytes == 4 * 64 * 64 + 4]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
@pytest.mark.parametrize("precision", ["fp8_tensorwise", "fp8_rowwise", "fp8_rowwise_gw_hp"])
def test_casts_to_float8_are_those_that_torchao_runs(precision: str) -> None:
    config = small(precision=precision, attention="sdpa", num_layers=1, batch_size=8)
    real = Counter(
        (one.operator.phase, one.operator.name, prod(one.operator.shapes[0]))
        for one in step_run(config).log.seen
        if ".*" in one.operator.module and one.operator.name in ("abs", "max", "amax", "clamp", "reciprocal", "exp2")
    )
    ours: Counter[tuple[str, str, int]] = Counter()
    for one in step_operators(config):
        if ".*" in one.module:
            name = {"amax_columns": "amax", "max_all": "max"}.get(one.name, one.name)
            ours[one.phase, name, prod(one.shapes[0])] += one.count
    for (phase, name, elements), times in real.items():
        assert ours[phase, name, elements] == times or name == "reciprocal", (phase, name, elements)
