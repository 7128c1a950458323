"""Windows and sequence packing: attention stays within both, positions start again, hidden scores are not counted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from lmsweep import analysis
from lmsweep.orchestrator.features.alone.attention_alone import flags_of_phase
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.analytic.datasheets import find_device, peak_flops
from lmsweep.trials.analytic.packed_scores import share_of_packed_scores
from lmsweep.trials.lengths.drawing import document_lengths
from lmsweep.trials.model.compiler import compile_counts, reset_compiler
from lmsweep.trials.model.precision_modes import MATH_MODES
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.transformer.attention_functions import ATTENTION, attention_for, naive
from lmsweep.trials.model.transformer.attention_support import check_attention
from lmsweep.trials.model.transformer.document_mask import document_of_positions, lengths_of
from lmsweep.trials.model.transformer.flex_attention import banded_block_mask
from lmsweep.trials.model.transformer.transformer import Transformer
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import Trial, TrialConfig, UnsupportedError
from lmsweep.trials.spec.rules.step_rules import WITH_WINDOW
from lmsweep.trials.timing.validity_flags import least_forward_flops
from tests.support.made_up_results import H200, Attempts
from tests.support.needs import needs_cuda
from tests.support.trial_here import run_here
from tests.support.whole_steps import small

ALONE = TrialConfig(d_model=16, num_heads=2, context_length=37, batch_size=2, lengths="8", batching="packed")
IN_A_MODEL = small(d_model=16, d_ff=24, context_length=37, batch_size=2, lengths="8", batching="packed")
ON_CPU = ("naive", "naive_softmax", "sdpa", "sdpa_math", "sdpa_flash")
MASKS: list[dict[str, Any]] = [{}, {"causal": False}, {"window": 3}, {"lengths": None, "batching": "padded"}]


def test_the_documents_of_a_sequence_fill_it_and_have_the_mean_that_was_asked_for() -> None:
    for context_length, mean in ((8192, 1024), (8192, 64), (4096, 1), (100, 30), (3, 2), (65536, 16)):
        lengths = document_lengths(context_length, mean)
        assert sum(lengths) == context_length and min(lengths) >= 1
        assert len(lengths) == round(context_length / mean)
    assert document_lengths(256, 1024) == (256,), "a sequence that is shorter than a document is one"
    assert document_lengths(8192, 1024) == (616, 2964, 1244, 401, 884, 223, 1790, 70), "the same in every process"


# Attention within documents


def random_inputs(config: TrialConfig, *, dtype: torch.dtype = torch.float64, device: str = "cpu") -> list[Tensor]:
    """q, k and v, the same for every type and device."""
    generator = torch.Generator().manual_seed(0)
    heads = () if config.num_heads is None else (config.num_heads,)
    shape = (config.batch_size, *heads, config.context_length, config.head_width)
    drawn = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in "qkv")
    return [one.to(device, dtype).requires_grad_() for one in drawn]


def output_and_gradients(attend: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    output = attend(*inputs)
    weights = torch.linspace(-1, 2, output.numel(), dtype=torch.float64).reshape(output.shape).to(output.device)
    return [output.detach(), *torch.autograd.grad((output.double() * weights).sum(), inputs)]


def each_by_itself(config: TrialConfig) -> Callable[..., Tensor]:
    def attend(*inputs: Tensor) -> Tensor:
        pieces = zip(*(one.split(lengths_of(config), dim=-2) for one in inputs), strict=True)
        return torch.cat([naive(*piece, causal=config.causal, window=config.window) for piece in pieces], dim=-2)

    return attend


@pytest.mark.parametrize("fields", MASKS, ids=str)
@pytest.mark.parametrize("name", ON_CPU)
def test_outputs_and_gradients_are_those_of_each_document_alone_in_float64(name: str, fields: dict[str, Any]) -> None:
    if "window" in fields and name not in WITH_WINDOW:
        pytest.skip("unsupported")
    config = replace(ALONE, attention=name, **fields)
    check_attention(config, torch.float64, gradients=True)
    found = output_and_gradients(attention_for(config, device="cpu", dtype=torch.float64), random_inputs(config))
    expected = output_and_gradients(each_by_itself(config), random_inputs(config))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@needs_cuda
@pytest.mark.parametrize(
    "fields",
    [{}, {"causal": False}, {"window": 100}, {"lengths": None, "batching": "padded", "num_heads": None, "d_model": 64}],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [*ATTENTION])
def test_on_cuda_each_is_as_near_to_naive_in_float64_as_its_type_allows(
    name: str, dtype: torch.dtype, fields: dict[str, Any]
) -> None:
    if "window" in fields and name not in WITH_WINDOW:
        pytest.skip("unsupported")
    if (name == "flex" and dtype == torch.float64) or (name == "varlen" and dtype.itemsize > 2):
        pytest.skip("its kernels have no such type")
    reset_compiler()
    shape = {"d_model": 128, "num_heads": 2, "context_length": 600, "lengths": "150", "batching": "packed"}
    config = replace(ALONE, **shape | fields, attention=name, device="cuda")
    try:
        check_attention(config, dtype, gradients=True)
    except UnsupportedError as error:
        pytest.skip(str(error))
    attend = attention_for(config, device="cuda", dtype=dtype)
    found = output_and_gradients(attend, random_inputs(config, dtype=dtype, device="cuda"))
    expected = output_and_gradients(each_by_itself(config), random_inputs(config))
    tolerances = {torch.float64: 1e-10, torch.float32: 2e-3, torch.bfloat16: 4e-2}
    for one, other in zip(found, expected, strict=True):
        tolerance = tolerances[dtype] * other.abs().max().item()
        torch.testing.assert_close(one.double().cpu(), other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("context", [500, 1024])
@pytest.mark.parametrize("mask", [{}, {"causal": False}, *({"window": one} for one in (1, 128, 129, 5000))], ids=str)
@pytest.mark.parametrize("mean", [None, 300])
def test_flex_computes_only_blocks_that_are_not_masked(context: int, mask: dict[str, Any], mean: int | None) -> None:
    config = replace(ALONE, context_length=context, lengths=mean and str(mean), batching="packed", **mask)
    documents = document_of_positions(config, "cpu")
    alike = torch.zeros(context, dtype=torch.int32) if documents is None else documents

    def attended(_: Tensor, __: Tensor, query: Tensor, key: Tensor) -> Tensor:
        allowed = alike[query] == alike[key]
        allowed = allowed & (query >= key) if config.causal else allowed
        return allowed & (query < key + (config.window or context))

    ours = banded_block_mask(context, "cpu", causal=config.causal, window=config.window, documents=documents)
    theirs = create_block_mask(attended, None, None, context, context, device="cpu")
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    if context % 128 == 0:  # the blocks beyond the end that PyTorch counts as masked are never computed
        assert torch.equal(ours.kv_num_blocks, theirs.kv_num_blocks)
        assert torch.equal(ours.full_kv_num_blocks, theirs.full_kv_num_blocks)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scope"), [("sdpa", "block"), ("naive", "model"), ("flex", "none")])
def test_a_compiled_model_keeps_documents_apart(name: str, scope: Any) -> None:
    found = []
    for attention, compiled in ((name, scope), ("naive", "none")):
        reset_compiler()
        torch.manual_seed(0)
        config = replace(IN_A_MODEL, attention=attention, compile=compiled, mode="forward")
        step = TrainingStep(config, MATH_MODES["fp32"])
        found.append(logits(step, step.inputs))
        assert compile_counts().graphs == ((attention, compiled) != ("naive", "none")), "one for all layers"
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


# varlen, whose kernel needs a GPU: a stand-in for it attends to one document after the other


def packed_documents(q: Tensor, k: Tensor, v: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int):
    """The documents in tensors (tokens, heads, d_head), each of q, k and v as (heads, tokens, d_head)."""
    assert cu_seq_q.dtype == torch.int32 and torch.equal(cu_seq_q, cu_seq_k)
    lengths = cu_seq_q.diff().tolist()
    assert max(lengths) == max_q == max_k and sum(lengths) == q.shape[0]
    return zip(*((piece.transpose(0, 1) for piece in one.split(lengths)) for one in (q, k, v)), strict=True)


def grouping_kernel(*inputs: Any, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False) -> Tensor:
    """varlen_attn with the parameters of PyTorch 2.12."""
    return kernel_of_2_11(*inputs, window_size=window_size)


def kernel_of_2_11(*inputs: Any, window_size: tuple[int, int] = (-1, -1)) -> Tensor:
    before, after = window_size
    shape = {"causal": after == 0, "window": None if before < 0 else before + 1}
    return torch.cat([naive(*piece, **shape).transpose(0, 1) for piece in packed_documents(*inputs)])


VARLEN = "torch.nn.attention.varlen.varlen_attn"


@pytest.mark.parametrize("kernel", [grouping_kernel, kernel_of_2_11])
@pytest.mark.parametrize("fields", MASKS, ids=str)
def test_varlen_puts_the_documents_of_all_sequences_one_after_the_other(
    kernel: Callable[..., Tensor], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VARLEN, kernel)
    config = replace(ALONE, attention="varlen", **fields)
    attend = attention_for(config, device="cpu", dtype=torch.float64)
    for batch in (2, 1):  # a micro-batch has fewer sequences
        inputs = [one[:batch] for one in random_inputs(config)]
        torch.testing.assert_close(attend(*inputs), each_by_itself(config)(*inputs), rtol=1e-10, atol=1e-10)


def test_varlen_is_unsupported_for_grouped_queries_if_pytorch_lacks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VARLEN, kernel_of_2_11)
    config = replace(ALONE, attention="varlen", device="cuda", num_kv_heads=1)
    with pytest.raises(UnsupportedError, match="takes no fewer heads of keys than of queries"):
        check_attention(config, torch.bfloat16, gradients=True)


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["block", "model"])
def test_varlen_is_compiled_into_one_graph(scope: Any) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        graphs.append(str(graph.graph))
        results = [node.meta["example_value"] for node in graph.graph.output_node().args[0]]
        return lambda *_: tuple(torch.empty(tuple(one.shape), dtype=one.dtype) for one in results)

    reset_compiler()
    config = replace(IN_A_MODEL, attention="varlen", compile=scope, mode="forward")
    TrainingStep(config, MATH_MODES["fp32"], backend=backend).forward()
    assert len(graphs) == 1 and graphs[0].count("torch_attn._varlen_attn") == (1 if scope == "block" else 2)


# In a model


def logits(step: TrainingStep, inputs: Tensor) -> Tensor:
    step.inputs = inputs
    step.forward()
    return step.logits.detach()


def test_each_document_has_the_logits_that_it_has_alone() -> None:
    torch.manual_seed(0)
    step = TrainingStep(IN_A_MODEL, MATH_MODES["fp32"])
    size = {"vocab_size": 50, "context_length": 37, "device": "cpu", "dtype": torch.float32}
    plain = Transformer(IN_A_MODEL.size, attention=naive, **size)
    plain.load_state_dict(step.model.state_dict())
    packed = logits(step, step.inputs)
    alone = torch.cat([plain(document) for document in step.inputs.split(lengths_of(IN_A_MODEL), dim=1)], dim=1)
    torch.testing.assert_close(packed, alone)
    assert torch.equal(step.model.blocks[0].attention.rope.cos[lengths_of(IN_A_MODEL)[0]], torch.ones(4)), "position 0"


def test_attention_alone_and_whole_steps_are_measured_with_documents() -> None:
    for workload, attention in (("attention", "sdpa"), ("timing", "naive")):
        config = replace(IN_A_MODEL, attention=attention, warmup_steps=1, measure_steps=2)
        rows = run_here(Trial(config=config, workloads=(workload,), sweep="tests"))
        assert {row.status for row in rows if isinstance(row, Record)} == {"ok"}


# What is counted


@pytest.mark.parametrize(("causal", "window"), [(True, None), (True, 90), (False, None)])
def test_each_convention_counts_the_scores_within_documents(causal: bool, window: int | None) -> None:
    context, mean = 4000, 400
    lengths = document_lengths(context, mean)
    shape = {"context_length": context, "document_length": mean, "causal": causal, "window": window}
    of_model = sum(length * min(length, window or length) for length in lengths)
    assert share_of_packed_scores("model", **shape) == pytest.approx(of_model / context**2)
    computed = sum(min(i + 1, window or length) if causal else length for length in lengths for i in range(length))
    assert share_of_packed_scores("hardware", **shape) == pytest.approx(computed / context**2, rel=0.02)
    whole = share_of_packed_scores("model", **shape | {"document_length": context, "window": None})
    assert whole == 1


def test_rates_and_flags_count_the_documents(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "results")
    base = TrialConfig(d_model=128, context_length=16384, batch_size=8, attention="flex", precision="bf16",
                       device="cuda")  # fmt: skip
    packed = replace(base, lengths="1024", batching="packed")
    windowed = replace(base, window=1024)
    lengths = document_lengths(16384, 1024)
    in_documents = sum(length**2 for length in lengths) / 16384**2
    in_windows = sum(length * min(length, 200) for length in lengths) / 16384**2
    counted = {base: 1, packed: in_documents, replace(packed, window=200): in_windows, windowed: 1024 / 16384}
    for config in counted:
        attempts.ok(config, {"forward.time": (1e-3,)}, workload="attention")
    rates = sorted(analysis.load(attempts.store)["tflops"])
    assert [rate / rates[-1] for rate in rates] == pytest.approx(sorted(counted.values()))
    h200 = find_device("NVIDIA H200", H200.device_memory)
    all_scores = 4 * 8 * 16384**2 * 128 / (peak_flops(h200, "bf16") or 0)
    shares = [(base, 0.5), (replace(base, causal=False), 1), (packed, in_documents / 2), (windowed, 0.0605)]
    assert flags_of_phase(base, "forward", [*range(1000, 1010), 10**6], None) == (Flag.OUTLIERS,)
    for config, share in shares:
        assert Flag.PHYSICS_VIOLATION in flags_of_phase(config, "forward", [0.9 * share * all_scores], h200)
        assert not flags_of_phase(config, "forward", [1.1 * share * all_scores], h200)
        assert not flags_of_phase(config, "forward", [0.9 * share * all_scores], None)
    model = replace(IN_A_MODEL, attention="flex")
    assert least_forward_flops(model) < least_forward_flops(replace(model, lengths=None, batching="padded"))


def test_the_padded_rows_of_the_packaged_sweep_are_as_long_as_the_longest_packed_document() -> None:
    steps = [trial.config for trial in load_sweep("packing").trials if "timing" in trial.workloads]
    (packed, *_), (padded,) = [c for c in steps if c.document_length], [c for c in steps if c.batch_size > 1]
    lengths = document_lengths(packed.context_length, packed.document_length or 0)
    assert (padded.batch_size, padded.context_length) == (len(lengths), max(lengths)) and min(lengths) == 70


# Memory


def on_cuda(**fields: Any) -> TrialConfig:
    shape = {"d_model": 256, "d_ff": 512, "num_layers": 1, "num_heads": 4, "vocab_size": 1000, "batch_size": 4}
    return TrialConfig(**({"context_length": 1024, "device": "cuda", "precision": "bf16"} | shape | fields))


def test_a_mask_of_all_scores_is_predicted_once_and_flex_and_varlen_have_none() -> None:
    packed = {"lengths": "128", "batching": "packed"}

    def added(name: str, subject: Any) -> int:
        with_documents, without = (predict(on_cuda(attention=name, **more), subject) for more in (packed, {}))
        return with_documents.after_init - without.after_init

    assert added("sdpa_efficient", "attention") == added("sdpa_efficient", "model") == 2 * 1024**2, "16 bits each"
    assert added("flex", "attention") < 20_000, "a number for each token"
    assert added("varlen", "model") < 20_000, "a number for each document"


def test_varlen_saves_what_flash_attention_saves_except_a_copy_of_its_output() -> None:
    varlen, flash = (predict(on_cuda(attention=name), "model").before_backward for name in ("varlen", "sdpa_flash"))
    # Its output has the heads of a token side by side, as the next layer wants it.
    copies = 2 * 4 * 1024 * 256
    assert varlen == pytest.approx(flash - copies, rel=1e-3)


def test_backward_of_varlen_needs_128_rows_more_for_each_document() -> None:
    both = (on_cuda(attention="varlen", lengths=mean, batching="packed") for mean in ("1024", "128"))
    one, many = (predict(each, "attention") for each in both)
    rows = 4 * (8 - 1) * 128  # in four sequences, of eight documents instead of one
    assert (many.peak_backward or 0) - (one.peak_backward or 0) == pytest.approx(4 * rows * 4 * (64 + 1), abs=1024)
