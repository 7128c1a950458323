"""Batches of different lengths on a GPU: kernels that know documents, and the allocator."""

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from lmsweep.trials.lengths.batches import Batch, batches
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.document_mask import documents_of
from lmsweep.trials.model.transformer.flex_attention import banded_block_mask
from lmsweep.trials.model.transformer.varlen_attention import cu_seqlens_of_batch
from lmsweep.trials.spec.config import Trial, TrialConfig
from tests.support.needs import needs_cuda
from tests.support.trial_here import run_here

ON_A_GPU = TrialConfig(
    d_model=128,
    d_ff=256,
    num_layers=2,
    num_heads=2,
    vocab_size=500,
    context_length=512,
    batch_size=2,
    lengths="uniform(1, 512)",
    precision="bf16",
    device="cuda",
    warmup_steps=1,
    batches=12,
)


def test_the_blocks_of_each_row_are_those_that_pytorch_finds() -> None:
    batch = Batch(rows=((100, 200, 90), (390,)), width=400)
    documents = documents_of(batch, "cpu")

    def attended(row: Any, head: Any, query: Any, key: Any) -> Any:
        return (query >= key) & (documents[row, query] == documents[row, key])

    ours = banded_block_mask(400, "cpu", documents=documents)
    theirs = create_block_mask(attended, B=2, H=None, Q_LEN=400, KV_LEN=400, device="cpu")
    assert torch.equal(ours.to_dense(), theirs.to_dense())


def test_borders_are_padded_with_documents_without_tokens() -> None:
    cu_seqlens = cu_seqlens_of_batch(Batch(rows=((3, 4), (10,)), width=10), "cpu").tolist()
    assert cu_seqlens == [0, 3, 7, 10, 20, *[20] * 12], "a multiple of 16 documents"


@needs_cuda
@pytest.mark.parametrize("attention", ["sdpa", "flex", "varlen"])
@pytest.mark.parametrize("batching", ["padded", "packed"])
@pytest.mark.parametrize("compiled", [False, True])
def test_every_kernel_gives_the_logits_of_naive_attention(attention: str, batching: Any, compiled: bool) -> None:
    config = replace(ON_A_GPU, attention=attention, batching=batching, mode="train_forward")
    if compiled:
        config = replace(config, compile="block", dynamic_shapes=batching == "padded")
    naive = replace(config, attention="naive", compile="none", dynamic_shapes=False)
    steps = [TrainingStep(one, MATH_MODES["bf16"]) for one in (config, naive)]
    steps[0].model.load_state_dict(steps[1].model.state_dict())
    for _ in range(4):
        found = []
        for step in steps:
            torch.manual_seed(0)
            (batch,) = step.advance()
            step.forward()
            assert step.logits is not None
            found.append(step.logits.detach().float())
        for index, row in enumerate(batch.rows):
            one, other = (logits[index, : sum(row)] for logits in found)
            torch.testing.assert_close(one, other, atol=0.1, rtol=0.1)


@needs_cuda
@pytest.mark.parametrize("allocator", ["default", "expandable_segments", "max_split_128MB"])
def test_the_memory_of_a_run_has_what_the_allocator_reserved_and_retried(allocator: Any) -> None:
    config = replace(ON_A_GPU, allocator=allocator)
    rows = run_here(Trial(config=config, workloads=("memory",), sweep="s"))
    values = {(row.phase, row.metric): row.samples for row in rows}  # type: ignore[union-attr]
    assert values["run", "peak_reserved"][0] >= values["run", "peak_allocated"][0] > 0  # type: ignore[index]
    assert values["run", "alloc_retries"] == (0,)
    assert len(values["step", "peak_allocated"]) == 12  # type: ignore[arg-type]
    assert len(list(islice(batches(config), 12))) == 12
