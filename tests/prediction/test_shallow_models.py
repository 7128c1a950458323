"""Two models of one layer and two stand for a deep one: its memory, its operators, and its largest batch."""

from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from lmsweep.trials.analytic.prediction_question import MemoryLimit, Question
from lmsweep.trials.analytic.rates.operators import Operators
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.predict import answer_to
from lmsweep.trials.prediction.step_family import step_family
from lmsweep.trials.prediction.step_operators import step_operators
from tests.support.whole_steps import five_layers as small
from tests.support.whole_steps import seconds_to_predict, totals, whole_memory, whole_operators

pytestmark = pytest.mark.usefixtures("one_core")

RANKS: dict[str, Any] = {"world_size": 2, "ddp": "fsdp", "d_model": 32, "d_ff": 64, "num_layers": 6, "num_heads": 4}
RANKS |= {"context_length": 8, "batch_size": 3, "precision": "bf16", "attention": "sdpa"}
# Ranks add up the gradients of all norms in one piece. Where a norm fills no block of 512 bytes, two depths do not show
# by how much that piece grows.
WIDE = {"d_model": 128, "d_ff": 256}
DEEP: list[dict[str, Any]] = [
    {"window": 8, "accumulate": 2, "batch_size": 6, "optimizer": "adamw_loop"},
    {"ddp": "flat", "world_size": 2},
    {"checkpointing": "sqrt", "num_layers": 9, "precision": "fp16_pure"},
    {"checkpointing": "nested", "compile": "block", "num_layers": 8},
    {"checkpointing": "selective", "compile": "block"},
    {"checkpointing": "2", "compile": "block", "precision": "bf16"},
    {"compile": "model"},
    {**RANKS, "compile": "block", "checkpointing": "block", "num_layers": 7},
    {**RANKS, "reshard": "false"},
    {**RANKS, "ddp": "overlap"},
    {**RANKS, "ddp": "torch"},
    {**RANKS, "ddp": "naive", "tp": 2, **WIDE},
    {**RANKS, "world_size": 4, "tp": 2, "accumulate": 2, "batch_size": 4, "optimizer": "adamw_foreach"},
    {**RANKS, "world_size": 8, "tp": 2, "ddp": "hsdp", "shards": 2},
]
if find_spec("peft"):
    DEEP += [
        # Only the second layer has gradients of what it reads.
        {"adapter": "lora", "precision": "bf16", "checkpointing": "block"},
        {**RANKS, "ddp": "naive", "tp": 2, "adapter": "lora", "adapter_args": '{"rank": 4}'},
        {**RANKS, "world_size": 4, "tp": 2, "adapter": "lora", "adapter_args": '{"rank": 4, "targets": ["w2"]}'},
        {"num_layers": 4, "checkpointing": "block", "mode": "forward_backward", "precision": "bf16_pure"},
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "bf16", "attention": "sdpa", "optimizer": "adamw_foreach", "num_layers": 3},
        *(pytest.param(one, marks=pytest.mark.slow) for one in DEEP),
    ],
    ids=str,
)
def test_two_shallow_models_stand_for_the_memory_and_operators_of_a_deep_one(fields: dict[str, Any]) -> None:
    config = small(**fields)
    assert numbers(step_operators(config)) == numbers(whole_operators(config))
    found = answer_to(Question(config=config))
    assert found.prediction == whole_memory(config) or (found.prediction is None and found.bounds)


def numbers(operators: Operators) -> Counter[Any]:
    found = Counter[Any]()
    for one in operators:
        found[replace(one, count=1)] += one.count
    return found


# The largest batch, from two batches of two shallow models, against runs of each batch

OF_STEP = {"d_ff": 128, "num_heads": 2, "vocab_size": 1000, "context_length": 128}
STEP = small(**OF_STEP, attention="sdpa", loss="cross_entropy", precision="bf16_pure")
WAYS: list[dict[str, Any]] = [
    {"checkpointing": "block", "adapter": "lora"},
    {"compile": "block"},
    {"checkpointing": "sqrt", "num_layers": 9, "attention": "naive"},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "forward"},
        *(pytest.param(one, marks=pytest.mark.slow) for one in WAYS),
    ],
    ids=str,
)
def test_the_largest_batch_which_was_not_run_needs_and_computes_what_a_run_of_it_does(fields):
    config, room = replace(STEP, **fields), MemoryLimit("H200 SXM", 2**28)
    step = step_family(config)
    found = step.largest(room)
    around = [replace(config, batch_size=batch) for batch in (found.sure, found.sure + 1)]
    verdicts = [answer_to(Question(config=one, limits=(room,), wants=("verdict",))).fits is True for one in around]
    assert found.sure > 2 and verdicts == [True, False]
    assert found.peak == pytest.approx(predict(around[0]).on(room.device_name).peak, rel=1e-3)
    assert totals(step.operators(found.sure)) == totals(step_operators(around[0]))


def test_one_sequence_of_few_tokens_has_a_peak_where_not_even_it_fits():
    """Its small tensors take a block each, as those of two sequences do."""
    config = replace(STEP, context_length=16, batch_size=1)
    found = step_family(config).largest(MemoryLimit("H200 SXM", 2**20))
    assert found.sure == 0 and found.peak == pytest.approx(predict(config).on("H200 SXM").peak, rel=1e-2)
    assert 0 < found.lasting < found.peak


# What a deep model costs


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"checkpointing": "block", "accumulate": 2},
        {"compile": "block", "precision": "bf16"},
    ],
    ids=str,
)
def test_eight_times_as_many_layers_cost_less_than_twice_the_prediction(fields: dict[str, Any]) -> None:
    seconds_to_predict(small(batch_size=8, **fields))  # what PyTorch keeps
    few, many = (seconds_to_predict(small(num_layers=layers, **fields)) for layers in (8, 64))
    assert many < 2 * few, (few, many)
