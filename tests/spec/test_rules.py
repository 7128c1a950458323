"""The table of what no machine runs, and of what some devices do not: each with its reason."""

import re
from dataclasses import replace
from typing import Any

import pytest

from lmsweep.trials.analytic.datasheets import DEVICES, capabilities_of, device_named
from lmsweep.trials.bench import run_trial
from lmsweep.trials.results.record import records_of
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.rules.combination_rules import why_not
from lmsweep.trials.spec.rules.device_rules import Capabilities, why_not_on
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS
from lmsweep.trials.spec.workloads import our_workloads
from tests.support.made_up_results import config
from tests.support.trial_here import run_here

MODEL = TrialConfig(
    d_model=64, d_ff=128, num_layers=2, num_heads=4, context_length=16, batch_size=4, vocab_size=100, device="cuda"
)

UNSUPPORTED: list[tuple[str, dict[str, Any], str]] = [
    ("timing", {"reshard": "false"}, "reshard false has no effect in the workload timing; it is for ddp"),
    ("ddp", {"message_bytes": 8}, "message_bytes 8 has no effect in the workload ddp; it is for collectives"),
    ("timing", {"world_size": 2}, "timing runs in one process; world_size and ddp are for"),
    ("memory", {"capture": "step"}, "memory measures no captured step; capture is for timing"),
    ("profile", {"accumulate": 2}, "accumulate is for timing, ddp, energy"),
    ("profile", {"step": "mine.py:step"}, "of the step mine.py:step only its phases are known; timing, memory, energy"),
    ("timing", {"step": "mine.py:step", "compile": "block"}, "compile has no effect with step mine.py:step"),
    ("ddp", {"memory_budget": 10**9}, "ddp does not keep a step within memory_budget; timing, memory, profile, energy"),
    ("ddp", {"device": "mps", "world_size": 2, "ddp": "naive"}, "ranks on mps are not measured"),
    ("ddp", {}, "synchronizes nothing"),
    ("ddp", {"ddp": "naive", "precision": "fp8_rowwise", "tp": 2, "world_size": 2}, "with tp use bf16"),
    ("ddp", {"ddp": "flat", "bucket_bytes": 1}, "bucket_bytes has no effect with ddp flat"),
    ("ddp", {"ddp": "naive", "mode": "train_forward"}, "computes no gradients"),
    ("ddp", {"ddp": "naive", "reshard": "false"}, "reshard has no effect with ddp naive, which gathers no weights"),
    ("ddp", {"ddp": "naive", "shards": 2}, "shards has no effect with ddp naive, which gathers no weights"),
    ("ddp", {"ddp": "naive", "gather": "bf16"}, "gather has no effect with ddp naive, which gathers no weights"),
    ("ddp", {"ddp": "zero2", "reshard": "false"}, "fsdp with reshard: false"),
    ("ddp", {"ddp": "hsdp", "world_size": 4}, "on one node give shards"),
    ("ddp", {"ddp": "hsdp", "world_size": 4, "nodes": 2, "tp": 4}, "tp 4 does not divide the 2 ranks"),
    ("ddp", {"ddp": "hsdp", "world_size": 4, "shards": 4}, "more than one group"),
    ("ddp", {"ddp": "hsdp", "world_size": 4, "shards": 1}, "groups of one"),
    ("ddp", {"ddp": "hsdp", "world_size": 4, "shards": 3}, "must divide"),
    ("ddp", {"ddp": "hsdp", "world_size": 4, "shards": 2, "reshard": "2"}, "smaller number"),
    ("ddp", {"ddp": "fsdp", "world_size": 4, "shards": 2}, "use hsdp"),
    ("ddp", {"ddp": "fsdp", "world_size": 2, "reshard": "2"}, "resharded over a smaller number of ranks"),
    ("ddp", {"ddp": "fsdp", "world_size": 8, "tp": 2, "reshard": "2"}, "does not reshard layers that tp divides"),
    ("ddp", {"ddp": "fsdp", "gather": "bf16"}, "precision fp32 computes in another"),
    ("ddp", {"ddp": "fsdp", "gather": "bf16", "precision": "bf16_pure"}, "precision bf16_pure computes in it"),
    ("ddp", {"ddp": "bucketed", "world_size": 2, "tp": 2}, "tp is measured with ddp naive, zero2, fsdp and hsdp"),
    ("ddp", {"ddp": "naive", "world_size": 2, "tp": 2, "qk_norm": True}, "tp divides lmsweep's own model"),
    ("ddp", {"ddp": "naive", "world_size": 2, "tp": 2, "loss": "cross_entropy"}, "use eager or compiled"),
    ("ddp", {"ddp": "naive", "world_size": 2, "tp": 2, "context_length": 33}, "tp 2 does not divide context_length 33"),
    ("ddp", {"ddp": "naive", "world_size": 4, "tp": 4, "vocab_size": 5}, "without a part of the vocabulary"),
    ("ddp", {"ddp": "naive", "world_size": 2, "tp": 2, "num_kv_heads": 1}, "tp 2 does not divide heads of keys 1"),
    ("ddp", {"ddp": "mine.py:wrap", "accumulate": 2}, "use accumulate: 1"),
    ("ddp", {"ddp": "fsdp", "optimizer": "sgd"}, "divided weights are measured with AdamW; with sgd"),
    ("ddp", {"ddp": "fsdp", "loss": "chunked"}, "loss chunked reads the weight of the head, which fsdp has divided"),
    ("ddp", {"ddp": "zero1", "mode": "forward_backward"}, "needs mode train_step"),
    ("ddp", {"ddp": "zero1", "optimizer": "sgd"}, "shards AdamW's state, not that of sgd"),
    ("ddp", {"ddp": "torch", "compile": "model", "bucket_bytes": 1000}, "1 MiB or more"),
    ("ddp", {"ddp": "naive", "compile": "block", "compile_mode": "max-autotune"}, "memory pool of CUDA graphs"),
    ("collectives", {}, "one rank sends nothing"),
    ("collectives", {"world_size": 2, "ddp": "naive"}, "collectives has no model"),
    ("collectives", {"world_size": 2, "precision": "fp8_rowwise"}, "send no float8 numbers"),
    ("collectives", {"world_size": 4, "message_bytes": 15}, "message_bytes 15 has no element for each of 4 ranks"),
    ("timing", {"attention": "sdpa", "window": 4}, "takes no window; these do: naive, naive_softmax, flex, varlen"),
    ("attention", {"attention": "./mine.py:f", "window": 4}, "attention ./mine.py:f takes no window"),
    ("attention", {"attention": "./mine.py:f", "lengths": "4", "batching": "packed"}, "does not learn where documents"),
    ("timing", {"model_code": "mine:Model", "lengths": "4", "batching": "packed"}, "does not learn where documents"),
    ("timing", {"model_code": "hf:gpt2", "attention": "mine:f"}, "hf:gpt2 has its own attention layers"),
    ("attention", {"attention": "flex", "device": "mps"}, "MPS"),
    ("attention", {"attention": "flex", "device": "cpu"}, "flex has no backward on a CPU"),
    ("precision", {"attention": "flex", "device": "cpu", "mode": "forward"}, "flex has no backward on a CPU"),
    ("attention", {"attention": "flex", "d_model": 32}, "at least 16, not 8"),
    ("timing", {"attention": "varlen", "model_code": "mine:Model"}, "varlen is for lmsweep's own model"),
    ("timing", {"attention": "varlen", "device": "cpu"}, "varlen needs an NVIDIA GPU (device: cuda)"),
    ("timing", {"attention": "varlen"}, "needs 16 bits (precision: bf16)"),
    ("timing", {"attention": "varlen", "precision": "bf16", "d_head": 12}, "8 divides, up to 256, not 12"),
    ("attention", {"attention": "sdpa_efficient", "device": "cpu"}, "sdpa_efficient needs an NVIDIA GPU"),
    ("attention", {"attention": "sdpa_cudnn", "device": "cpu", "precision": "bf16"}, "sdpa_cudnn needs an NVIDIA GPU"),
    ("attention", {"attention": "sdpa_flash", "device": "mps"}, "an NVIDIA GPU (device: cuda) or device: cpu"),
    ("timing", {"attention": "sdpa_flash"}, "takes the dtypes float16 and bfloat16 on CUDA"),
    ("timing", {"dynamic_shapes": True}, "dynamic_shapes has no effect with compile: none"),
    ("timing", {"dynamic_shapes": True, "compile": "block", "compile_mode": "reduce-overhead"}, "one shape each"),
    ("timing", {"compile_mode": "max-autotune"}, "has no effect with compile: none"),
    ("timing", {"compile": "block", "compile_mode": "reduce-overhead", "device": "cpu"}, "cpu does not have"),
    ("timing", {"compile": "block", "compile_mode": "max-autotune", "device": "mps"}, "no kernels to choose from"),
    ("attention", {"compile": "block"}, "no block to compile; compile: model"),
    ("attention", {"precision": "fp8_rowwise"}, "attention alone has no linear layers"),
    ("attention", {"precision": "bf16_pure"}, "has no weights; with precision: bf16"),
    ("attention", {"cold_l2": True, "device": "cpu"}, "cold_l2 needs device: cuda"),
    ("timing", {"checkpointing": "block", "mode": "forward"}, "has no effect in mode forward"),
    ("timing", {"checkpointing": "sqrt", "model_code": "mine:Model"}, "with your own model use block"),
    ("timing", {"precision": "fp8_rowwise", "num_experts": 4}, "experts are batched products"),
    ("timing", {"precision": "fp8_rowwise", "d_ff": 40}, "divisible by 16, and d_ff is 40"),
    ("timing", {"precision": "fp8_rowwise", "batch_size": 1, "context_length": 24}, "micro-batch is 24"),
    ("timing", {"memory_budget": 10**9}, "use compile: block"),
    ("timing", {"offload": "activations", "device": "cpu"}, "moves to the host what device cpu has there"),
    ("timing", {"offload": "activations", "mode": "forward"}, "saves nothing"),
    ("timing", {"offload": "activations", "compile": "block"}, "its compiler's choice"),
    ("timing", {"offload": "activations", "capture": "step"}, "CUDA graphs cannot record"),
    ("timing", {"offload": "block_inputs"}, "use it with checkpointing"),
    ("timing", {"offload": "block_inputs", "checkpointing": "selective", "compile": "block"}, "compile: block with"),
    ("timing", {"offload": "block_inputs", "checkpointing": "block", "compile": "model"}, "part of what is compiled"),
    ("ddp", {"offload": "optimizer", "ddp": "zero1", "world_size": 2}, "once per rank; use ddp fsdp"),
    ("timing", {"offload": "optimizer", "mode": "forward_backward"}, "which updates no weights"),
    ("timing", {"offload": "optimizer", "optimizer": "muon"}, "PyTorch's AdamW (adamw_fused, "),
    ("ddp", {"offload": "activations", "ddp": "naive", "world_size": 2}, "weights that ranks gather"),
    ("timing", {"memory_budget": 10**9, "compile": "model"}, "takes too long"),
    ("timing", {"memory_budget": 10**9, "compile": "block", "checkpointing": "block"}, "so does checkpointing"),
    ("timing", {"memory_budget": 10**9, "compile": "block", "mode": "forward"}, "saves nothing"),
    ("timing", {"capture": "step", "device": "cpu"}, "cpu does not have"),
    ("timing", {"capture": "step", "compile": "block", "compile_mode": "reduce-overhead"}, "CUDA graphs of its own"),
    ("timing", {"capture": "step", "accumulate": 2}, "captures each phase once"),
    ("timing", {"capture": "step", "optimizer": "sgd"}, "needs a capturable optimizer, and sgd is none"),
    ("timing", {"capture": "step", "precision": "fp16", "optimizer": "adamw_loop"}, "gradient scaler"),
    ("timing", {"loss": "chunked", "model_code": "mine:Model"}, "mine:Model returns logits"),
    ("timing", {"precision": "fp16_pure", "optimizer": "muon"}, "by adamw_fused, not by muon"),
    ("timing", {"precision": "fp16_pure", "offload": "optimizer"}, "both copy the weights"),
    ("ddp", {"precision": "fp16_pure", "ddp": "zero1", "world_size": 2}, "use precision: fp16"),
    ("timing", {"loss": "liger", "device": "cpu"}, "needs device: cuda"),
    ("timing", {"adapter": "qlora", "device": "cpu"}, "kernels need device: cuda, not cpu"),
    ("timing", {"adapter": "qlora", "compile": "block"}, "not measured with compile"),
    ("ddp", {"adapter": "qlora", "ddp": "fsdp", "world_size": 2, "gather": "bf16", "precision": "bf16"}, "convert"),
    ("ddp", {"adapter": "qlora", "ddp": "naive", "world_size": 2, "tp": 2}, "divides its blocks of 64 weights"),
    ("ddp", {"adapter": "dora", "ddp": "naive", "world_size": 2, "tp": 2}, "rows, whose norms it trains; use lora"),
    (
        "ddp",
        {"adapter": "lora", "ddp": "naive", "world_size": 2, "tp": 2, "adapter_args": '{"dropout": 0.1}'},
        "draw other numbers for parts of a layer",
    ),
    ("timing", {"adapter_args": '{"rank": 4}'}, "no effect with adapter none"),
    ("timing", {"adapter": "lora", "mode": "forward"}, "which trains nothing"),
    ("timing", {"adapter": "lora", "precision": "fp8_rowwise"}, "replaces the same layers"),
    ("timing", {"adapter": "lora", "loss": "chunked"}, "which adapter lora freezes"),
    ("timing", {"adapter": "lora", "optimizer": "muon"}, "own matrices"),
    ("precision", {"adapter": "lora"}, "most are frozen"),
    ("attention", {"adapter": "lora"}, "no effect in the workload attention"),
    ("loss", {"loss": "cut_cross_entropy", "device": "cpu"}, "needs device: cuda"),
    ("loss", {"compile": "block"}, "no block to compile; loss: compiled"),
    ("loss", {"precision": "fp8_rowwise"}, "the head is in bf16"),
    ("ceiling", {"precision": "fp8_rowwise_gw_hp"}, "that of fp8_rowwise, or bfloat16's"),
    ("ceiling", {"precision": "fp8_rowwise", "d_model": 40}, "divisible by 16, and d_model is 40"),
    *(("noop", {"precision": name, "device": "cpu"}, "8.9 or higher, not device: cpu") for name in FLOAT8_PRECISIONS),
    ("noop", {"precision": "tf32", "device": "mps"}, "8.0 or higher, not device: mps"),
]


@pytest.mark.parametrize(("workload", "fields", "reason"), UNSUPPORTED, ids=str)
def test_a_combination_that_no_machine_runs_is_unsupported_with_the_reason(
    workload: str, fields: dict[str, Any], reason: str
) -> None:
    config = replace(MODEL, **fields)
    assert re.search(re.escape(reason), why_not(config, workload) or "")


@pytest.mark.parametrize("workload", our_workloads())
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps", "xpu"])
def test_a_plain_configuration_runs_every_workload(workload: str, device: str) -> None:
    if our_workloads()[workload].has_ranks:
        device = "cpu" if device in ("mps", "xpu") else device
        config = replace(MODEL, world_size=2, ddp="none" if workload == "collectives" else "bucketed", device=device)
    else:
        config = replace(MODEL, device=device)
    assert why_not(config, workload) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"ddp": "hsdp", "world_size": 16, "nodes": 2},
        {"ddp": "hsdp", "world_size": 16, "nodes": 2, "tp": 2},
        {"ddp": "fsdp", "world_size": 4, "reshard": "2"},
        {"ddp": "mine.py:wrap", "world_size": 2, "gather": "bf16", "precision": "bf16"},
        {"ddp": "zero1", "world_size": 2, "bucket_bytes": 1000},
        {"ddp": "fsdp", "world_size": 2, "adapter": "qlora", "device": "cuda"},
        {"ddp": "fsdp", "world_size": 2, "precision": "fp8_tensorwise", "gather": "bf16", "device": "cuda"},
        {"ddp": "fsdp", "world_size": 2, "checkpointing": "block", "offload": "block_inputs", "device": "cuda"},
        {"ddp": "fsdp", "world_size": 2, "offload": "optimizer", "adapter": "qlora", "device": "cuda"},
        {"ddp": "fsdp", "world_size": 2, "checkpointing": "selective", "compile": "block"},
    ],
    ids=str,
)
def test_ranks_that_can_share_a_step_run_it(fields: dict[str, Any]) -> None:
    assert why_not(replace(MODEL, **fields), "ddp") is None


@pytest.mark.parametrize(
    ("device", "fields", "reason"),
    [
        ("A100 SXM 80GB", {"precision": "fp8_rowwise"}, "compute capability 8.9 or higher; A100 SXM 80GB has 8.0"),
        ("A100 SXM 80GB", {"precision": "bf16"}, None),
        ("A100 SXM 80GB", {"attention": "varlen", "precision": "bf16"}, None),
        ("L4", {"precision": "fp8_rowwise"}, None),
        ("T4", {"precision": "bf16"}, "T4 has no bfloat16 arithmetic"),
        ("T4", {"precision": "tf32"}, "8.0 or higher; T4 has 7.5"),
        ("T4", {"precision": "fp16"}, None),
        ("T4", {"attention": "sdpa_flash", "precision": "fp16"}, "sdpa_flash needs compute capability 8.0"),
        ("T4", {"attention": "varlen", "precision": "fp16"}, "varlen needs compute capability 8.0"),
        ("V100 SXM 16GB", {"precision": "bf16_pure"}, "V100 SXM 16GB has no bfloat16 arithmetic"),
        ("MI300X", {"precision": "fp8_rowwise"}, "an NVIDIA GPU of compute capability 8.9 or higher, not MI300X"),
        ("MI300X", {"attention": "sdpa_flash", "precision": "bf16"}, None),
    ],
)
def test_a_device_without_a_format_or_kernel_is_unsupported_with_what_it_has(
    device: str, fields: dict[str, Any], reason: str | None
) -> None:
    sheet = device_named(device)
    assert sheet
    found = why_not_on(replace(MODEL, **fields), "timing", capabilities_of(sheet))
    assert found is None if reason is None else reason in str(found)


def test_attention_decides_nothing_about_a_workload_without_it() -> None:
    config = replace(MODEL, attention="varlen", precision="fp16")
    assert why_not_on(config, "ceiling", Capabilities("T4", (7, 5))) is None


def test_every_datasheet_of_nvidia_has_a_compute_capability_that_fits_its_rates() -> None:
    for device in DEVICES:
        if not device.name.startswith("MI"):
            assert (device.chip.compute >= (8, 9)) == (device.fp8 is not None), device.name
            assert (device.chip.compute >= (8, 0)) == (device.tf32 is not None) == (device.bf16 is not None), (
                device.name
            )


def test_a_combination_that_a_rule_excludes_ends_before_the_device_is_prepared() -> None:
    trial = Trial(config=config(device="cuda", capture="step", accumulate=2), workloads=("timing",), sweep="s")
    (row,) = records_of(run_here(trial))
    assert (row.status, row.error) == (
        "unsupported",
        "capture: step captures each phase once; with accumulate a phase runs once per micro-batch",
    )


def test_what_this_device_lacks_is_unsupported_though_no_plan_knew_it(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Capabilities("Quadro P400", (6, 1), bfloat16=False)
    monkeypatch.setattr(run_trial, "capabilities", lambda _: old)
    asked = replace(config(), attention="sdpa_flash", num_layers=1, d_model=32, d_ff=32, num_heads=2)
    (row,) = records_of(run_here(Trial(config=asked, workloads=("timing",), sweep="s")))
    assert row.status == "unsupported" and "compute capability 8.0 or higher; Quadro P400 has 6.1" in str(row.error)
