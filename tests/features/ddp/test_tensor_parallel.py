"""Tensor parallelism: what a rank computes, sends and holds, with gloo."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lmsweep.orchestrator.features.ddp.checked.compared_step import ComparedStep
from lmsweep.orchestrator.features.ddp.checked.gradient_check import gradient_error
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.ranks.comm_count import message_of
from lmsweep.trials.machine.torch_private import TorchDispatchMode
from lmsweep.trials.model.host_copies import part_of
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.config import TrialConfig
from tests.features.ddp.test_sharding import RANK_4, SMALL, WITH_PEFT, check, in_ranks

DIVIDED = replace(SMALL, tp=2, ddp="naive", timeout_seconds=300.0)
PHASES = {"synchronization": "backward"}
Sent = Counter[tuple[str, str, str, int]]
"""Phase, kind, type and bytes of a message -> how many a rank sends in one step."""

COMPILED: list[dict[str, Any]] = [
    {"compile": "block"},
    {"compile": "block", "checkpointing": "block", "loss": "compiled"},
    {"compile": "model"},
]
ADAPTED = {"adapter": "lora", "adapter_args": RANK_4}
with_peft = pytest.mark.skipif(not WITH_PEFT, reason="no PEFT")
CASES: dict[str, dict[str, Any]] = {
    "grouped queries": {"precision": "bf16_pure", "num_kv_heads": 2, "num_layers": 3},
    "gelu, tied": {"precision": "bf16", "feed_forward": "gelu", "tied_head": True},
    "checkpointed": {"precision": "bf16", "checkpointing": "block"},
}
HELD: dict[str, dict[str, Any]] = {"plain": {}, "in 16 bits": {"precision": "bf16_pure"}}
if WITH_PEFT:
    CASES["adapted"] = {"precision": "bf16", **ADAPTED}
    HELD["adapted"] = ADAPTED


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


def messages(bench: Workbench, config: TrialConfig) -> list[Sent]:
    found = []
    for fields in CASES.values():
        one = replace(config, **fields)
        parallel = ComparedStep(one, MATH_MODES[one.precision])
        parallel.build()
        parallel.step(synchronized=True)
        with Messages() as watched:
            for phase in parallel.phases():
                watched.phase = PHASES.get(phase.name, phase.name)
                phase.run()
        found.append(watched.sent)
    return found


def messages_and_parts(bench: Workbench, config: TrialConfig) -> list[Any]:
    return [dict(zip(CASES, messages(bench, config), strict=True)), dict(zip(HELD, parts(bench, config), strict=True))]


@pytest.fixture(scope="module")
def of_a_rank() -> list[Any]:
    return in_ranks(messages_and_parts, DIVIDED, WITH_PEFT)


@pytest.fixture(scope="module")
def sent(of_a_rank) -> dict[str, Sent]:
    return of_a_rank[0]


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


@pytest.mark.parametrize("case", [pytest.param("grouped queries", marks=pytest.mark.slow), "gelu, tied"])
def test_each_half_of_a_block_sends_once_in_each_direction_and_in_the_type_of_products(sent, case):
    one = replace(DIVIDED, **CASES[case])
    assert predicted(one) == sent[case] == expected(one)


def predicted(config: TrialConfig) -> Sent:
    found: Sent = Counter()
    for operator in step_operators(config):
        if operator.stream == "communication":
            found[operator.phase, operator.name, operator.dtype, operator.bytes] += operator.count
    return found


@with_peft
def test_adapters_add_one_sum_of_the_gradients_of_those_matrices_that_each_rank_has_whole(sent):
    config = replace(DIVIDED, **CASES["adapted"])
    assert predicted(config) == sent["adapted"]
    frozen = expected(config)
    half = config.batch_size * config.context_length * config.d_model * 2
    frozen["backward", "reduce_scatter", "bfloat16", half] -= 1  # to the embedding, which is frozen
    del frozen["backward", "all_gather", "float32", 2 * half]  # its gradient
    del frozen["backward", "all_reduce", "float32", (2 * 2 + 1) * config.d_model * 4]  # those of norms
    frozen["forward", "reduce_scatter", "bfloat16", half] += 1  # of the embedding, which is stored in 16 bits
    del frozen["forward", "reduce_scatter", "float32", 2 * half]
    matrices = 7 * 4 * config.d_model  # A of five layers by columns, B of two by rows, in each block
    assert sent["adapted"] == frozen + Sent({("backward", "all_reduce", "float32", 2 * matrices * 4): 1})


def test_a_checkpointed_block_gathers_again_and_sums_are_not_scattered_in_another_type(sent):
    more = sent["checkpointed"] - expected(replace(DIVIDED, precision="bf16"))
    assert {(phase, kind, dtype) for phase, kind, dtype, _ in more} == {
        ("backward", "all_gather", "bfloat16"),
        ("backward", "reduce_scatter", "bfloat16"),
    }


# What it holds


def parts(bench: Workbench, config: TrialConfig) -> list[dict[str, Any]]:
    found = []
    for fields in HELD.values():
        one = replace(config, **fields)
        parallel = ComparedStep(one, MATH_MODES[one.precision])
        parallel.build()
        residual: list[tuple[int, ...]] = []
        for block in parallel.training.blocks:
            block.register_forward_hook(lambda block, inputs, output, to=residual: to.append(tuple(output.shape)))
        parallel.training.forward()
        logits = parallel.training.logits
        assert logits is not None
        weights = {name: tuple(part_of(one).shape) for name, one in parallel.training.model.named_parameters()}
        held = {"weights": weights, "residual": residual[:], "logits": tuple(logits.shape)}
        found.append(held | {"error": gradient_error(parallel)})
    return found


def test_a_rank_has_its_part_of_the_vocabulary_the_residual_stream_and_each_layer_and_of_one_matrix_of_an_adapter(
    of_a_rank,
):
    found = of_a_rank[1]
    plain, width, tokens = found["plain"], DIVIDED.d_model, DIVIDED.context_length // 2
    assert plain["weights"]["token_embedding.weight"] == plain["weights"]["head.weight"] == (25, width)
    assert plain["weights"]["blocks.0.attention.query.weight"] == (width // 2, width)
    assert plain["weights"]["blocks.0.attention.output.weight"] == (width, width // 2)
    assert plain["weights"]["blocks.0.attention_norm.weight"] == (width,)
    assert plain["residual"] == [(2, tokens, width)] * 2
    assert plain["logits"] == (2, DIVIDED.context_length, 25)
    assert 0 < found["in 16 bits"]["error"] < 5e-2, "rounding"
    if "adapted" in found:
        adapted = found["adapted"]["weights"]
        for layer, shapes in {
            "blocks.0.attention.query": [(width // 2, width), (4, width), (width // 2, 4)],
            "blocks.0.attention.output": [(width, width // 2), (4, width // 2), (width, 4)],
        }.items():
            assert [adapted[name] for name in adapted if name.startswith(f"{layer}.")] == shapes, "W, A, B"
    assert all(found[name]["error"] < 1e-4 for name in found if name != "in 16 bits")


@pytest.mark.slow
def test_fully_shard_does_not_warn_of_logits_that_are_views():
    """PyTorch 2.13 did, fifteen times in one plan. The loss does not change logits in place."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        step_operators(replace(DIVIDED, ddp="fsdp", device="cuda", seed=7))
    assert [str(one.message) for one in given if "view tensor" in str(one.message)] == []
