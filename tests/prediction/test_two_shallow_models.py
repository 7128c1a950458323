"""Two models of one layer and two stand for a deep one: its memory, and its operators."""

from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from lmsweep.trials.analytic.prediction_question import Question
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.prediction.depth.operator_growth import deepened
from lmsweep.trials.prediction.predict import answer_to
from lmsweep.trials.prediction.step_operators import step_operators
from tests.support.whole_steps import five_layers as small
from tests.support.whole_steps import whole_memory, whole_operators

pytestmark = pytest.mark.usefixtures("one_core")

RANKS: dict[str, Any] = {"world_size": 2, "ddp": "fsdp", "d_model": 32, "d_ff": 64, "num_layers": 6, "num_heads": 4}
RANKS |= {"context_length": 8, "batch_size": 3, "precision": "bf16", "attention": "sdpa"}
DEEP: list[dict[str, Any]] = [
    {"window": 8, "accumulate": 2, "batch_size": 6, "optimizer": "adamw_loop"},
    {"ddp": "flat", "world_size": 2},
    {"checkpointing": "sqrt", "num_layers": 9, "precision": "fp16_pure"},
    {"checkpointing": "nested", "compile": "block", "num_layers": 8},
    {"checkpointing": "selective", "compile": "block"},
    {"compile": "model"},
    {**RANKS, "compile": "block", "checkpointing": "block", "num_layers": 7},
    {**RANKS, "reshard": "false"},
    {**RANKS, "ddp": "overlap"},
    {**RANKS, "ddp": "torch"},
    {**RANKS, "ddp": "naive", "tp": 2},
    {**RANKS, "world_size": 4, "tp": 2, "accumulate": 2, "batch_size": 4, "optimizer": "adamw_foreach"},
    {**RANKS, "world_size": 8, "tp": 2, "ddp": "hsdp", "shards": 2},
]
if find_spec("peft"):
    DEEP += [
        {**RANKS, "ddp": "naive", "tp": 2, "adapter": "lora", "adapter_args": '{"rank": 4}'},
        {**RANKS, "world_size": 4, "tp": 2, "adapter": "lora", "adapter_args": '{"rank": 4, "targets": ["w2"]}'},
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "bf16", "attention": "sdpa", "optimizer": "adamw_foreach"},
        {"batch_size": 2, "checkpointing": "block", "mode": "forward_backward", "precision": "bf16_pure"},
        {"checkpointing": "2", "compile": "block", "precision": "bf16"},
        *(pytest.param(fields, marks=pytest.mark.slow) for fields in DEEP),
    ],
    ids=str,
)
def test_two_shallow_models_of_few_iterations_stand_for_the_memory_and_operators_of_a_deep_one(
    fields: dict[str, Any],
) -> None:
    config = small(**fields)
    assert numbers(step_operators(config)) == numbers(whole_operators(config))
    found = answer_to(Question(config=config))
    assert found.prediction == whole_memory(config) or (found.prediction is None and found.bounds)


@pytest.mark.skipif(find_spec("peft") is None, reason="adapters need peft")
def test_one_layer_and_two_give_a_deep_model_with_adapters_though_only_the_second_has_gradients_of_what_it_reads() -> (
    None
):
    one, two, four = (
        whole_operators(small(adapter="lora", precision="bf16", checkpointing="block", num_layers=layers))
        for layers in (1, 2, 4)
    )
    found = deepened(one, two, 3)
    assert found is not None and numbers(found) == numbers(four)


def numbers(operators: Operators) -> Counter[Any]:
    found = Counter[Any]()
    for one in operators:
        found[replace(one, count=1)] += one.count
    return found
