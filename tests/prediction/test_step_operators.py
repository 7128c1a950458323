"""The operators of a step: what they compute, against closed forms and against runs of the whole model."""

import logging
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from lmsweep.trials.analytic.formulas import forward_flops
from lmsweep.trials.analytic.rates.operators import Operators, class_of
from lmsweep.trials.analytic.rates.rate_set import launched
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.config import TrialConfig
from tests.support.whole_steps import five_layers as small
from tests.support.whole_steps import named

pytestmark = pytest.mark.usefixtures("one_core")


PASSES = ("forward", "backward")
USUAL = {"precision": "bf16", "attention": "sdpa", "optimizer": "adamw_foreach", "loss": "cross_entropy"}
OTHERS: list[dict[str, Any]] = [
    {"checkpointing": "block", "feed_forward": "gelu"},
    {"num_experts": 4, "active_experts": 1, "num_kv_heads": 2, "precision": "bf16"},
    {"attention": "flex", "window": 8, "precision": "bf16", "checkpointing": "2"},
    {"loss": "chunked", "compile": "block"},
]


def total(operators: Operators, **wanted: Any) -> int:
    chosen = [one for one in operators if all(getattr(one, name) == value for name, value in wanted.items())]
    return sum(one.count * one.flops for one in chosen)


def products_of(config: TrialConfig) -> int:
    terms = {**config.size.terms, "vocab_size": config.vocab_size, "context_length": config.context_length}
    return int(forward_flops(**terms, batch_size=config.batch_size))


@pytest.mark.parametrize(
    "fields",
    [
        USUAL,
        *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS),
    ],
    ids=str,
)
def test_flops_of_lmsweeps_own_model_are_those_of_the_closed_form(fields: dict[str, Any]) -> None:
    config = small(**fields)
    found = count_flops(config)
    assert (found.forward, found.backward) == (products_of(config), 2 * products_of(config))


def test_inference_computes_the_products_of_the_forward_pass_of_training() -> None:
    modes = ("forward", "train_forward")
    forward, training = (step_operators(small(mode=one, attention="sdpa", precision="bf16")) for one in modes)
    assert total(forward) == total(training) > 0
    assert Counter(one.name for one in forward) == Counter(one.name for one in training)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("peft") is None, reason="adapters need peft")
def test_the_host_calls_each_adapter_once_and_makes_each_weight_of_4_bits_whole_in_both_passes() -> None:
    found = Counter[str]()
    for one in step_operators(small(adapter="qlora", precision="bf16")):
        found[launched(one)] += one.count
    layers = 5 * 7
    assert found["adapter"] == layers
    assert 2 * layers - 5 <= found["four_bits"] <= 2 * layers  # nothing before the first block's projections learns


def test_a_checkpointed_block_computes_its_products_again_up_to_the_last() -> None:
    config = small(checkpointing="block")
    again = total(step_operators(config), is_again=True)
    tokens, layers = config.batch_size * config.context_length, config.num_layers or 0
    head, last = 2 * tokens * 64 * 50, 2 * tokens * 64 * 96
    assert again == products_of(config) - head - layers * last


def test_an_operator_has_its_place_its_class_and_the_layout_of_its_operands() -> None:
    found = step_operators(small(precision="bf16", attention="sdpa"))
    (attention,) = (one for one in found if class_of(one) == "attention" and one.phase == "forward")
    assert (attention.name, attention.module, attention.count) == ("sdpa_cudnn", "blocks.*.attention", 5)
    assert attention.is_causal and attention.shapes[0] == (4, 4, 32, 16)
    first = next(one for one in found if one.name == "mm" and one.module.endswith("query") and one.phase == "forward")
    assert (first.layout, first.dtype, first.shapes) == ("nt", "bfloat16", ((128, 64), (64, 64)))
    assert {one.module for one in found if one.phase == "optimizer"} == {"optimizer"}
    assert {"loss", "head", "token_embedding"} <= {one.module for one in found}
    (update,) = (one for one in found if one.name == "_fused_adamw_")
    weights = update.shapes[0][0]
    assert 28 * weights <= update.bytes < 28 * weights + 1000  # four tensors read, three written, and counts


@pytest.mark.parametrize(
    "fields",
    [
        {"attention": "sdpa_flash", "causal": False},
        {"attention": "sdpa_efficient", "causal": False},
        {"attention": "sdpa_cudnn", "causal": False},
        {"attention": "sdpa", "lengths": "8"},
        {"attention": "sdpa_efficient", "lengths": "8"},
    ],
    ids=str,
)
def test_a_kernel_of_attention_computes_all_scores_where_no_causal_mask_is_its_own(fields: dict[str, Any]) -> None:
    """Some kernels also take whether backward follows. A mask of documents they read, and skip nothing."""
    found = [one for one in step_operators(small(precision="bf16", **fields)) if class_of(one) == "attention"]
    products = 4 * 4 * 4 * 32**2 * 16
    assert {one.phase: (one.flops, one.is_causal) for one in found} == {
        "forward": (products, False),
        "backward": (2.5 * products, False),
    }


def test_compiled_blocks_have_the_same_products_in_fewer_kernels_that_move_less() -> None:
    eager, compiled = (step_operators(small(compile=way, precision="bf16")) for way in ("none", "block"))
    assert total(eager) == total(compiled)
    assert {one.name for one in compiled if class_of(one) == "compiled"} == {"fused"}
    layers = [[one for one in side if ".*" in one.module] for side in (compiled, eager)]
    launches = [sum(one.count for one in side) for side in layers]
    moved = [sum(one.bytes * one.count for one in side) for side in layers]
    assert launches[0] < 0.5 * launches[1] and moved[0] < 0.5 * moved[1]
    steps = [step_operators(small(compile=way)) for way in ("none", "block", "model")]
    calls = [sum(one.calls * one.count for one in step) for step in steps]
    assert calls == [0, 2 * 5, 2], "forward and backward of each block, or of the model"


@pytest.mark.slow
def test_compiled_code_of_a_micro_batch_neither_fuses_with_the_next_nor_is_called_with_it() -> None:
    parts = ({"accumulate": times, "batch_size": times} for times in (1, 3))
    one, three = (step_operators(small(compile="block", precision="bf16_pure", **each)) for each in parts)

    def in_blocks(operators: Operators, of: str) -> list[int]:
        found = [each for each in operators if ".*" in each.module and each.phase != "optimizer"]
        return [sum(getattr(each, of) * each.count for each in found if each.phase == phase) for phase in PASSES]

    assert in_blocks(three, "calls") == [3 * 5, 3 * 5]
    forward, backward = in_blocks(one, "bytes")
    assert in_blocks(three, "bytes")[0] == 3 * forward
    added = in_blocks(three, "bytes")[1] - 3 * backward
    weights = 5 * (4 * 64**2 + 3 * 64 * 96)
    assert added == pytest.approx(2 * 3 * 2 * weights, rel=0.01), "twice, it reads both gradients and writes their sum"


@pytest.mark.parametrize("fields", [{"loss": "liger"}, {"loss": "compiled"}, {"optimizer": "adamw_8bit"}], ids=str)
def test_kernels_of_packages_stand_as_what_they_compute(fields: dict[str, Any]) -> None:
    plain = small(loss="cross_entropy")
    assert total(step_operators(replace(plain, **fields))) == total(step_operators(plain))


@pytest.mark.slow
def test_a_rank_yields_what_it_computes_with_its_part_of_each_weight() -> None:
    same = {"precision": "bf16", "attention": "sdpa", "mode": "train_step", "num_layers": 1}
    alone = step_operators(small(**same))
    sharded = step_operators(small(world_size=4, ddp="fsdp", **same))
    divided = step_operators(small(world_size=2, ddp="naive", tp=2, **same))

    def updated(operators: Operators) -> int:
        return sum(one.bytes for one in operators if one.name == "_fused_adamw_")

    def of_products(operators: Operators) -> int:
        return sum(one.count * one.flops for one in operators if one.name == "mm")

    def of_exponentials(operators: Operators) -> int:
        return sum(one.count * one.bytes for one in operators if one.name == "exp" and one.module == "loss")

    assert updated(sharded) == pytest.approx(updated(alone) / 4, rel=0.01)
    assert 2 * of_products(divided) == of_products(alone) == of_products(sharded), "the head's among them"
    assert 2 * of_exponentials(divided) == of_exponentials(alone) == of_exponentials(sharded)


STEP = """
import torch
from torch import nn
from torch.nn import functional

def attend(q, k, v, is_causal):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

def step(d_model, batch_size, device):
    layer = nn.Linear(d_model, 4 * d_model).to(device)
    optimizer = torch.optim.SGD(layer.parameters())
    x = torch.randn(batch_size, d_model, device=device)
    def once():
        layer(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return once
"""


def test_the_users_attention_and_step_yield_what_they_compute(mine: Any) -> None:
    mine(STEP)
    same = {"precision": "bf16", "num_layers": 2}
    own, built_in = (step_operators(small(attention=name, **same)) for name in ("mine:attend", "sdpa"))
    assert total(own) == total(built_in) > 0
    alone = TrialConfig(step="mine:step", d_model=64, batch_size=8, device="cuda", mode="train_step")
    assert total(step_operators(alone)) == 2 * 2 * 8 * 64 * 4 * 64, "forward, and the gradient of the weights"


def test_a_long_context_with_a_large_vocabulary_has_operators(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch that stands for any would need more bytes than 64 bits count."""
    monkeypatch.setattr(logging.getLogger("torch._subclasses.fake_tensor"), "handlers", [caplog.handler])
    wide = {"context_length": 8192, "vocab_size": 128256, "precision": "bf16", "attention": "sdpa"}
    found = step_operators(named("tiny", batch_size=2, **wide))
    assert any(one.name == "mm" and one.shapes[1][-1] == 128256 for one in found)
    assert "overflowed" not in caplog.text, "a user would see PyTorch's traceback"
