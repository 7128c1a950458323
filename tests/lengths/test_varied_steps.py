"""Steps whose batches differ by the lengths of their documents, run on tiny models."""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from lmsweep.trials.bench.varied_steps import BatchesTaken, token_rows
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.isolation.client import IsolatedRunner
from lmsweep.trials.lengths.batches import Batch, batches
from lmsweep.trials.lengths.recompiling import recompiles, runs_uncompiled
from lmsweep.trials.model.compiler import compile_counts, reset_compiler
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import naive
from lmsweep.trials.model.transformer.document_mask import documents_of
from lmsweep.trials.model.transformer.flex_attention import banded_block_mask
from lmsweep.trials.model.transformer.varlen_attention import cu_seqlens_of_batch
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.record import Record, Row, records_of
from lmsweep.trials.spec.config import Trial, TrialConfig
from tests.support.needs import needs_cuda
from tests.support.trial_here import run_here
from tests.support.whole_steps import small

SIZE = {"d_model": 16, "d_ff": 24, "context_length": 32, "batch_size": 2}
TINY = small(**SIZE, lengths="uniform(1, 32)", warmup_steps=1, batches=12)


def records_of_trial(config: TrialConfig, workload: str) -> dict[tuple[Any, Any], Any]:
    return by_name(run_here(Trial(config=config, workloads=(workload,), sweep="s")))


def by_name(rows: Iterable[Row]) -> dict[tuple[Any, Any], Any]:
    rows = [*rows]
    assert {row.status for row in rows if isinstance(row, Record)} == {"ok"}, records_of(rows)[0].error
    return {(row.phase, row.metric): row for row in rows if isinstance(row, Record)}


def one_after_the_other(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, *_: Any, **__: Any) -> Tensor:
    """A stand-in for PyTorch's varlen_attn, which needs a GPU: attends to one document after the other."""
    pieces = zip(*(one.split(cu_seqlens.diff().tolist()) for one in (q, k, v)), strict=True)
    documents = [[one.transpose(0, 1) for one in piece] for piece in pieces if len(piece[0])]
    return torch.cat([naive(*document).transpose(0, 1) for document in documents])


@pytest.mark.parametrize("attention", ["naive", "sdpa", "flex", "varlen"])
def test_a_packed_document_has_the_logits_that_it_has_alone(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", one_after_the_other)
    torch.manual_seed(0)
    packed = replace(TINY, batching="packed", attention=attention, mode="forward")
    step = TrainingStep(packed, MATH_MODES["fp32"], backend="eager")
    plain = replace(packed, lengths=None, batching="padded", batch_size=1, attention="naive")
    alone = TrainingStep(plain, MATH_MODES["fp32"])
    alone.model.load_state_dict(step.model.state_dict())
    batch_of_step = step.advance()[0]
    assert any(len(row) > 1 for row in batch_of_step.rows)
    step.forward()
    assert step.logits is not None and tuple(step.logits.shape[:2]) == batch_of_step.shape == (2, 32)
    for index, row in enumerate(batch_of_step.rows):
        first = 0
        for length in row:
            tokens = step.inputs[index, first : first + length]
            alone.inputs = alone.targets = tokens[None]
            alone.forward()
            found = step.logits[index, first : first + length]
            torch.testing.assert_close(found, alone.logits[0], atol=1e-5, rtol=1e-4)
            first += length


@pytest.mark.parametrize("batching", ["padded", "grouped", "token_budget"])
def test_each_step_has_the_shape_of_its_batch(batching: Any) -> None:
    config = replace(TINY, batching=batching, batch_tokens=96 if batching == "token_budget" else None, accumulate=2)
    step = TrainingStep(config, MATH_MODES["fp32"])
    expected = list(islice(batches(config), 6))
    taken = BatchesTaken(step)
    shapes = []
    for _ in range(3):
        with taken.stepping():
            for phase in step.phases():
                phase.run()
                if phase.name == "forward":
                    shapes.append(tuple(step.logits.shape[:2]))
            step.drop()
    assert shapes == [batch.shape for batch in expected]
    assert [batch for one in taken.taken for batch in one] == expected


def test_timing_measures_the_first_batches_whatever_ran_before() -> None:
    config = replace(TINY, batching="grouped", warmup_steps=3)
    rows = records_of_trial(config, "timing")
    expected = list(islice(batches(config), 12))
    real, padded = (rows["step", name].samples for name in ("real_tokens", "padded_tokens"))
    assert real == tuple(batch.real_tokens for batch in expected)
    assert padded == tuple(batch.padded_tokens for batch in expected)
    seconds = rows["step", "time"].samples
    assert len(seconds) == 12
    assert rows["step", "padding"].samples == (pytest.approx(1 - sum(real) / sum(padded)),)
    assert rows["step", "real_tokens_per_second"].samples == (pytest.approx(sum(real) / sum(seconds)),)
    assert rows["step", "padded_tokens_per_second"].samples == (pytest.approx(sum(padded) / sum(seconds)),)
    assert rows["step", "mean_time"].samples == (pytest.approx(sum(seconds) / 12),)
    assert sorted(seconds)[-2] <= rows["step", "p99_time"].samples[0] <= max(seconds)
    assert rows["step", "flops"].samples is None and "differ with its batch" in rows["step", "flops"].reason


def test_a_warm_up_of_other_batches_ends_once_nothing_was_compiled_in_ten_steps() -> None:
    rows = records_of_trial(replace(TINY, batching="padded", warmup_steps="auto"), "timing")
    assert len(rows["step", "time"].warmup_samples) == 10


@pytest.mark.slow
def test_memory_says_the_peak_of_each_step_and_of_the_run_and_why_a_cpu_has_no_retries() -> None:
    padded = records_of_trial(replace(TINY, batches=6), "memory")
    peaks = padded["step", "peak_tensors"].samples
    assert len(peaks) == 6 and padded["run", "peak_tensors"].samples == (max(peaks),)
    widths = [batch.shape[1] for batch in islice(batches(TINY), 6)]
    assert len(set(peaks[1:])) > 3, "batches of other widths"
    assert peaks[1:].index(max(peaks[1:])) == widths[1:].index(max(widths[1:])), "the widest needs the most"
    assert not padded["step", "peak_tensors"].flags
    retries = padded["run", "alloc_retries"]
    assert retries.samples is None and "no allocator with a cache" in retries.reason
    assert padded["run", "peak_reserved"].samples is None and padded["run", "peak_reserved"].reason


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"batching": "packed"},
        pytest.param({"batching": "token_budget", "batch_tokens": 40}, marks=pytest.mark.slow),
    ],
)
def test_compiled_code_is_compiled_again_as_often_as_predicted(fields: dict[str, Any], dynamic: bool) -> None:
    reset_compiler()
    config = replace(TINY, compile="block", dynamic_shapes=dynamic, mode="forward", batches=20, **fields)
    step = TrainingStep(config, MATH_MODES["fp32"], backend="eager")
    taken = BatchesTaken(step)
    graphs, seconds = [], []
    for _ in range(20):
        with taken.stepping():
            step.forward()
        graphs.append(compile_counts().graphs)
        seconds.append(compile_counts().seconds)
    shapes = [batch.shape for (batch,) in taken.taken]
    assert graphs[0] == 1 and graphs[-1] - 1 == recompiles(config), "both blocks share a graph"
    if not dynamic:
        assert graphs == [min(8, len({*shapes[: i + 1]})) for i in range(20)]
        assert (graphs[-1] == 8) == ("packed" not in fields.values()) == runs_uncompiled(config)
    assert seconds == sorted(seconds) and seconds[0] > 0 and (seconds[-1] == seconds[0]) == (graphs[-1] == 1)


VARLEN = {"batching": "packed", "attention": "varlen", "d_model": 1280, "batch_size": 2}


# Measured with PyTorch 2.11 on an H100 and an H200: docs/lab/2026-11-27-new-shapes.md
@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"lengths": "lognormal(400, 0.8, 4096)", "attention": "sdpa", "batching": "grouped"}, 1),
        ({"lengths": "uniform(16, 4096)", "attention": "sdpa", "d_model": 1024}, 0),
        ({"lengths": "uniform(16, 4096)", "attention": "sdpa_flash", "d_model": 1024}, 1),
        ({"lengths": "lognormal(400, 0.8, 4096)", "batching": "token_budget", "batch_tokens": 32768}, 0),
        ({"lengths": "uniform(16, 4096)", "dynamic_shapes": False}, 7),
        ({"lengths": "uniform(16, 4096)", "dynamic_shapes": False, "batching": "packed"}, 0),
        ({"lengths": "lognormal(600, 0.8, 4096)", "dynamic_shapes": False, **VARLEN}, 1),
    ],
)
def test_a_gpu_recompiles_as_often_as_was_measured(fields: dict[str, Any], count: int) -> None:
    usual = {"d_model": 768, "context_length": 4096, "batch_size": 8, "device": "cuda", "compile": "block"}
    size = {"batch_size": 1} if "batch_tokens" in fields else {}
    config = replace(TINY, **(usual | {"dynamic_shapes": True, "batches": 50} | fields | size))
    assert recompiles(config) == count


def test_the_ninth_shape_runs_uncompiled_and_the_eighth_does_not() -> None:
    config = replace(TINY, compile="block", dynamic_shapes=False, lengths="uniform(16, 4096)", context_length=4096)
    eight, nine = (replace(config, batches=count) for count in (8, 9))
    assert [recompiles(one) for one in (eight, nine)] == [7, 7]
    assert not runs_uncompiled(eight) and runs_uncompiled(nine)


def test_memory_that_runs_out_says_in_which_step_and_with_which_batch() -> None:
    taken = BatchesTaken(TrainingStep(TINY, MATH_MODES["fp32"]))
    with taken.stepping():
        pass
    second = list(islice(batches(TINY), 2))[1]
    with pytest.raises(torch.OutOfMemoryError) as error, taken.stepping():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore")
    rows, width = second.shape
    assert str(error.value) == f"step 2, with {rows} x {width} tokens: CUDA out of memory. Tried to allocate 2 GiB."


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["padded", "packed"])
def test_each_rank_has_its_own_batches_and_the_step_waits_for_the_longest(
    batching: Any, runner: IsolatedRunner, environment: Fingerprint
) -> None:
    config = replace(TINY, batching=batching, ddp="torch", world_size=2, batches=6)
    rows = by_name(runner.run(Trial(config=config, workloads=("ddp",), sweep="s"), fallback=environment))
    of_ranks = [list(islice(batches(config, rank, 2), 6)) for rank in range(2)]
    assert of_ranks[0] != of_ranks[1]
    for metric in ("real_tokens", "padded_tokens"):
        pairs = zip(*of_ranks, strict=True)
        assert rows["step", metric].samples == tuple(sum(getattr(one, metric) for one in pair) for pair in pairs)
    seconds = rows["step", "time"].samples
    speed = sum(rows["step", "padded_tokens"].samples) / sum(seconds)
    assert rows["step", "padded_tokens_per_second"].samples[0] == pytest.approx(speed)
    assert "where all batches have one shape" in rows["gradients", "relative_error"].reason


@pytest.mark.slow
@pytest.mark.usefixtures("forget_code")
def test_a_model_of_hugging_face_takes_batches_of_different_lengths(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    described = {"model_type": "llama", "vocab_size": 50, "max_position_embeddings": 64, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(described))
    use_code(code_folder(tmp_path))
    shape: dict[str, Any] = {"context_length": 32, "batch_size": 2, "lengths": "uniform(1, 32)", "batches": 6}
    shape |= {"batching": "token_budget", "batch_tokens": 96}
    config = TrialConfig(model_code=f"hf:{tmp_path}", vocab_size=0, warmup_steps=1, **shape)
    rows = records_of_trial(config, "timing")
    expected = tuple(batch.padded_tokens for batch in islice(batches(config), 6))
    assert rows["step", "padded_tokens"].samples == expected


def test_the_time_of_a_token_varies_little_between_the_parts_of_sorted_batches() -> None:
    sizes: dict[str, Any] = {"context_length": 512, "batch_size": 8, "lengths": "lognormal(100, 0.8, 512)"}
    taken = [(one,) for one in islice(batches(replace(TINY, batching="grouped", **sizes)), 100)]
    seconds = [1e-3 + 1e-6 * batch.padded_tokens for (batch,) in taken]
    rows = {row.metric: row for row in token_rows(taken, seconds)}
    parts = rows["token_time"].samples
    assert parts is not None and len(parts) == 10 and max(parts) < 1.2 * min(parts)
    assert sum(parts) / 10 == pytest.approx(sum(seconds) / sum(rows["real_tokens"].samples or ()), rel=0.02)


def test_the_blocks_of_each_row_are_those_that_pytorch_finds() -> None:
    documents = documents_of(Batch(rows=((100, 200, 90), (390,)), width=400), "cpu")

    def attended(row: Any, head: Any, query: Any, key: Any) -> Any:
        return (query >= key) & (documents[row, query] == documents[row, key])

    ours = banded_block_mask(400, "cpu", documents=documents)
    theirs = create_block_mask(attended, B=2, H=None, Q_LEN=400, KV_LEN=400, device="cpu")
    assert torch.equal(ours.to_dense(), theirs.to_dense())


# On a GPU

LARGER: dict[str, Any] = {"d_model": 128, "d_ff": 256, "vocab_size": 500, "context_length": 512}
ON_A_GPU = replace(TINY, **LARGER, lengths="uniform(1, 512)", precision="bf16", device="cuda")


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
