"""Ranks that train adapters beside frozen weights, of 4 bits too, and ranks that multiply in float8."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from lmsweep.orchestrator.features.ddp.checked.compared_step import ComparedStep
from lmsweep.orchestrator.features.ddp.checked.gradient_check import gradient_error, weights_digest
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.model.adapted_layers import FourBitLinear
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from tests.features.ddp.test_sharding import SMALL, in_ranks

pytest.importorskip("peft")

ADAPTED = replace(SMALL, d_model=64, d_ff=128, adapter_args='{"rank": 4}')
WIDE = {"d_model": 256, "d_ff": 512}
FROZEN = 2 * (4 * 256 * 256 + 3 * 256 * 512)
"""Weights of the linear layers of its two blocks at this width."""


def test_each_rank_holds_and_gathers_its_share_of_weights_in_four_bits() -> None:
    shards = 4
    ranks = replace(ADAPTED, **WIDE, adapter="qlora", precision="bf16_pure", device="cuda", world_size=shards)
    whole, shared = (predict(replace(ranks, ddp=one)) for one in ("naive", "fsdp"))
    wide = predict(replace(ranks, adapter="lora", ddp="fsdp"))
    assert whole.after_init - shared.after_init >= FROZEN // 2 * (shards - 1) // shards
    # Half a byte in place of two; each rank has the scales of all.
    assert wide.after_init - shared.after_init == pytest.approx(1.5 * FROZEN / shards - 4 * FROZEN / 64, rel=0.2)
    narrow, broad = (
        sum(one.bytes * one.count for one in step_operators(replace(ranks, ddp="fsdp", adapter=way)) if one.ranks > 1)
        for way in ("qlora", "lora")
    )
    assert broad - narrow >= 1.5 * FROZEN, "at least once"


def test_four_bits_are_kept_in_a_type_that_every_pytorch_shards() -> None:
    layer = FourBitLinear(nn.Linear(64, 32, bias=False, device="meta"), torch.bfloat16)
    assert layer.weight.dtype == torch.float32, "fully_shard of PyTorch 2.11 refuses integers, and rounds others"
    assert layer.weight.nbytes == 64 * 32 / 2


def sums(bench: Workbench, config: TrialConfig, precision: str = "fp32") -> list[dict[str, Any]]:
    """Of each way to average: the error of the gradients, and whether steps have changed the weights."""
    found = []
    for way in ("naive", "torch", "fsdp", "zero2"):
        torch.manual_seed(bench.rank.index if bench.rank else 0)  # ranks quantize other weights
        parallel = ComparedStep(replace(config, ddp=way, precision=precision), MATH_MODES[precision])
        parallel.build()
        before = weights_digest(parallel)
        assert weights_digest(parallel) == before, "also of bits that are no number"
        error = gradient_error(parallel)
        for synchronized in (True, False, True):
            parallel.step(synchronized=synchronized)
        found.append({"error": error, "trained": weights_digest(parallel) != before})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["dora", "qlora"])
def test_gradients_of_adapters_in_ranks_are_those_of_one_process(adapter: str) -> None:
    if adapter == "qlora":
        pytest.importorskip("bitsandbytes")
    for one in in_ranks(sums, replace(ADAPTED, adapter=adapter)):
        assert one["error"] < 1e-4 and one["trained"]


@pytest.mark.parametrize("fields", [{"ddp": "naive"}, {"ddp": "fsdp", "gather": "bf16"}], ids=str)
def test_ranks_multiply_in_float8_what_one_process_does_and_send_what_ranks_in_bfloat16_send(
    fields: dict[str, str],
) -> None:
    ranks = replace(SMALL, d_model=64, d_ff=128, context_length=32, device="cuda", attention="sdpa", **fields)
    found, narrow, alone = (
        step_operators(one)
        for one in (
            replace(ranks, precision="fp8_tensorwise"),
            replace(ranks, precision="bf16"),
            replace(ranks, precision="fp8_tensorwise", ddp="none", world_size=1, gather="fp32"),
        )
    )

    def products(operators: Any) -> Counter[Any]:
        counts: Counter[Any] = Counter()
        for one in operators:
            if one.name == "_scaled_mm":
                counts[one.shapes] += one.count
        return counts

    assert products(found) == products(alone) and sum(products(found).values()) == 3 * 7 * 2
    assert {one for one in found if one.ranks > 1} == {one for one in narrow if one.ranks > 1} != set()


def test_gradients_of_float8_in_ranks_are_those_of_one_process() -> None:
    pytest.importorskip("torchao")
    wide = replace(SMALL, d_model=64, d_ff=128, context_length=32)
    for one in in_ranks(partial(sums, precision="fp8_tensorwise"), wide):
        assert one["error"] < PRECISIONS["fp8_tensorwise"].gradient_error and one["trained"]
