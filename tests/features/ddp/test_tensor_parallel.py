"""Tensor parallelism: what a rank computes, sends and holds, with gloo."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest

from lmsweep.orchestrator.features.ddp.checked.compared_step import ComparedStep
from lmsweep.orchestrator.features.ddp.checked.gradient_check import gradient_error
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.ranks.comm_count import message_of
from lmsweep.trials.machine.torch_private import TorchDispatchMode
from lmsweep.trials.model.host_copies import part_of
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.config import TrialConfig
from tests.features.ddp.test_sharding import SMALL, check, in_ranks

DIVIDED = replace(SMALL, tp=2, ddp="naive", timeout_seconds=300.0)
PHASES = {"synchronization": "backward"}
Sent = Counter[tuple[str, str, str, int]]
"""Phase, kind, type and bytes of a message -> how many a rank sends in one step."""

WAYS: dict[str, dict[str, Any]] = {
    "tied": {"tied_head": True},
    "odd vocabulary": {"vocab_size": 51},
}


def test_ties_and_vocabularies_that_do_not_divide_leave_the_weights_of_one_process_after_three_steps():
    check(DIVIDED, WAYS)


COMPILED: list[dict[str, Any]] = [
    {"compile": "block"},
    {"compile": "block", "checkpointing": "block", "loss": "compiled"},
    {"compile": "model"},
]
ADAPTED = {"adapter": "lora", "adapter_args": '{"rank": 4}'}
with_peft = pytest.mark.skipif(not find_spec("peft"), reason="no PEFT")


@pytest.mark.slow  # it compiles
@pytest.mark.parametrize("fields", [*COMPILED, pytest.param({"compile": "block", **ADAPTED}, marks=with_peft)], ids=str)
def test_compiled_layers_have_the_weights_of_one_process_after_three_steps(fields):
    check(DIVIDED, {"compiled": fields})


# What it sends


class Messages(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.sent: Sent = Counter()
        self.phase = ""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        message = message_of(func, args, result)
        if message:
            first = args[0][0] if isinstance(args[0], list) else args[0]
            self.sent[self.phase, message.kind, str(first.dtype).removeprefix("torch."), message.size] += 1
        return result


def messages(bench: Workbench, config: TrialConfig, cases: Sequence[dict[str, Any]]) -> list[Sent]:
    found = []
    for fields in cases:
        parallel = ComparedStep(replace(config, **fields), bench.math_mode)
        parallel.build()
        parallel.step(synchronized=True)
        with Messages() as watched:
            for phase in parallel.phases():
                watched.phase = PHASES.get(phase.name, phase.name)
                phase.run()
        found.append(watched.sent)
    return found


def expected(config: TrialConfig) -> Sent:
    """One gather and one scatter a half-block in each direction, and those of embedding, head, loss and norms."""
    layers, width = config.num_layers or 0, config.d_model
    tokens = config.batch_size * config.context_length
    narrow, half = "bfloat16", tokens * width * 2
    weights = "bfloat16" if config.precision == "bf16_pure" else "float32"
    size = 2 if weights == "bfloat16" else 4
    found: Sent = Counter()
    for phase in ("forward", "backward"):
        found[phase, "all_gather", narrow, half] += 2 * layers + (phase == "forward")
        found[phase, "reduce_scatter", narrow, half] += 2 * layers + (phase == "backward")
    found["forward", "reduce_scatter", weights, tokens * width * size] += 1  # of the embedding
    found["backward", "all_gather", weights, tokens * width * size] += 1
    found["forward", "all_reduce", "float32", tokens * 4] += 1  # the largest logit of each token
    found["forward", "all_reduce", "float32", 2 * tokens * 4] += 1  # the sum of exponentials, the target's logit
    found["backward", "all_reduce", weights, (2 * layers + 1) * width * size] += 1  # gradients of the norms
    return found


@pytest.mark.parametrize("precision", ["bf16", "bf16_pure"])
def test_each_half_of_a_block_sends_once_in_each_direction_and_in_the_type_of_products(precision):
    cases = [{}, {"num_kv_heads": 2, "num_layers": 3}, {"feed_forward": "gelu", "tied_head": True}]
    config = replace(DIVIDED, precision=precision)
    for fields, sent in zip(cases, in_ranks(partial(messages, cases=cases), config), strict=True):
        one = replace(config, **fields)
        assert predicted(one) == sent == expected(one)


def predicted(config: TrialConfig) -> Sent:
    found: Sent = Counter()
    for operator in step_operators(config):
        if operator.stream == "communication":
            found[operator.phase, operator.name, operator.dtype, operator.bytes] += operator.count
    return found


@with_peft
def test_adapters_add_one_sum_of_the_gradients_of_those_matrices_that_each_rank_has_whole():
    config = replace(DIVIDED, precision="bf16", **ADAPTED)
    (sent,) = in_ranks(partial(messages, cases=[{}]), config)
    assert predicted(config) == sent
    frozen = expected(config)
    half = config.batch_size * config.context_length * config.d_model * 2
    frozen["backward", "reduce_scatter", "bfloat16", half] -= 1  # to the embedding, which is frozen
    del frozen["backward", "all_gather", "float32", 2 * half]  # its gradient
    del frozen["backward", "all_reduce", "float32", (2 * 2 + 1) * config.d_model * 4]  # those of norms
    frozen["forward", "reduce_scatter", "bfloat16", half] += 1  # of the embedding, which is stored in 16 bits
    del frozen["forward", "reduce_scatter", "float32", 2 * half]
    matrices = 7 * 4 * config.d_model  # A of five layers by columns, B of two by rows, in each block
    assert sent == frozen + Sent({("backward", "all_reduce", "float32", 2 * matrices * 4): 1})


def test_a_checkpointed_block_gathers_again_and_sums_are_not_scattered_in_another_type():
    (sent,) = in_ranks(partial(messages, cases=[{"checkpointing": "block"}]), replace(DIVIDED, precision="bf16"))
    more = sent - expected(replace(DIVIDED, precision="bf16"))
    assert {(phase, kind, dtype) for phase, kind, dtype, _ in more} == {
        ("backward", "all_gather", "bfloat16"),
        ("backward", "reduce_scatter", "bfloat16"),
    }


# What it holds


def parts(bench: Workbench, config: TrialConfig) -> list[dict[str, Any]]:
    parallel = ComparedStep(config, bench.math_mode)
    parallel.build()
    residual: list[tuple[int, ...]] = []
    for block in parallel.training.blocks:
        block.register_forward_hook(lambda block, inputs, output: residual.append(tuple(output.shape)))
    parallel.training.forward()
    logits = parallel.training.logits
    assert logits is not None
    weights = {name: tuple(part_of(one).shape) for name, one in parallel.training.model.named_parameters()}
    held = {"weights": weights, "residual": residual[:], "logits": tuple(logits.shape)}
    return [held | {"error": gradient_error(parallel)}]


def test_a_rank_has_its_part_of_the_vocabulary_the_residual_stream_and_each_layer():
    (found,) = in_ranks(parts, DIVIDED)
    width, tokens = DIVIDED.d_model, DIVIDED.context_length // 2
    assert found["weights"]["token_embedding.weight"] == found["weights"]["head.weight"] == (25, width)
    assert found["weights"]["blocks.0.attention.query.weight"] == (width // 2, width)
    assert found["weights"]["blocks.0.attention.output.weight"] == (width, width // 2)
    assert found["weights"]["blocks.0.attention_norm.weight"] == (width,)
    assert found["residual"] == [(2, tokens, width)] * 2
    assert found["logits"] == (2, DIVIDED.context_length, 25)
    assert found["error"] < 1e-4


@with_peft
def test_a_rank_has_its_part_of_one_of_the_two_matrices_of_an_adapter_and_all_of_the_other():
    (found,) = in_ranks(parts, replace(DIVIDED, **ADAPTED))
    width, weights = DIVIDED.d_model, found["weights"]
    for layer, shapes in {
        "blocks.0.attention.query": [(width // 2, width), (4, width), (width // 2, 4)],
        "blocks.0.attention.output": [(width, width // 2), (4, width // 2), (width, 4)],
    }.items():
        of_layer = [shape for name, shape in weights.items() if name.startswith(f"{layer}.")]
        assert of_layer == shapes, "W, A, B"
    assert found["error"] < 1e-4


def test_in_16_bits_gradients_are_those_of_one_process_up_to_rounding():
    (found,) = in_ranks(parts, replace(DIVIDED, precision="bf16_pure"))
    assert 0 < found["error"] < 5e-2


# Beside a plan written by hand
