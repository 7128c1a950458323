"""Tensor parallelism: what a rank computes, sends and holds, with gloo."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lmsweep.orchestrator.features.ddp.checked.compared_step import ComparedStep
from lmsweep.orchestrator.features.ddp.checked.gradient_check import gradient_error
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.parallel.fully_sharded import part_of
from lmsweep.trials.distributed.ranks.comm_count import message_of
from lmsweep.trials.machine.torch_private import TorchDispatchMode
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


@pytest.mark.slow  # it compiles
@pytest.mark.parametrize(
    "fields",
    [{"compile": "block"}, {"compile": "block", "checkpointing": "block", "loss": "compiled"}, {"compile": "model"}],
    ids=str,
)
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
        assert sent == expected(one)
        predicted: Sent = Counter()
        for operator in step_operators(one):
            if operator.stream == "communication":
                predicted[operator.phase, operator.name, operator.dtype, operator.bytes] += operator.count
        assert predicted == sent


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


def test_in_16_bits_gradients_are_those_of_one_process_up_to_rounding():
    (found,) = in_ranks(parts, replace(DIVIDED, precision="bf16_pure"))
    assert 0 < found["error"] < 5e-2


# Beside a plan written by hand
