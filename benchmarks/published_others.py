"""Steps and peaks of memory that other trainers published on few GPUs, as `plan` plans them.

A row whose caveat says that the number is not what it seems, or that leaves open what was run, is listed apart, as one
that `plan` refuses is.
"""

import csv
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.rules.combination_rules import why_not

MODELS = Path(__file__).parent / "published_models"
FILES = ("published-2026-11.csv", "published-2026.csv", "published-finetuning.csv", "published-fleet.csv")
NEUSIGHT = {"GPT-2 Large": "gpt2-large", "GPT3-XL as configured (2.8B)": "gpt3-xl", "GPT3-2.7B": "gpt3-2.7b",
            "OPT-1.3B": "opt-1.3b", "BERT-Large": "bert-large"}  # fmt: skip
"""Model of NeuSight -> its configuration in MODELS."""
_SHAPE = ("d_model", "d_ff", "num_layers", "num_heads", "num_kv_heads", "d_head", "tied_head", "qk_norm", "vocab_size")
_EXPERTS = {"num_experts": 128, "active_experts": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen3-0.6B": dict(zip(_SHAPE, (1024, 3072, 28, 16, 8, 128, "true", "true", 151936), strict=True)),
    "Qwen3-4B": dict(zip(_SHAPE, (2560, 9728, 36, 32, 8, 128, "true", "true", 151936), strict=True)),
    "Qwen3-30B-A3B": dict(zip(_SHAPE, (2048, 768, 48, 32, 4, 128, "false", "true", 151936), strict=True)) | _EXPERTS,
    "Qwen3-235B-A22B": dict(zip(_SHAPE, (4096, 1536, 94, 64, 4, 128, "false", "true", 151936), strict=True)) | _EXPERTS,
    "Qwen-1.8B": dict(zip(_SHAPE, (2048, 5504, 24, 16, 16, 128, "false", "false", 151936), strict=True)),
    "Qwen-7B": dict(zip(_SHAPE, (4096, 11008, 32, 32, 32, 128, "false", "false", 151936), strict=True)),
    "Qwen-14B": dict(zip(_SHAPE, (5120, 13696, 40, 40, 40, 128, "false", "false", 152064), strict=True)),
    "Llama-2-7b": {"model": "llama-2-7b", "vocab_size": 32000},
    "Llama-2-13b": {"model": "llama-2-13b", "vocab_size": 32000},
    "Llama 3.1 8B": {"model": "llama-3.1-8b", "vocab_size": 128256},
    "Llama 3.2 3B": {"model": "llama-3.2-3b", "vocab_size": 128256},
}
DEVICES = {
    "NVIDIA H100": "H100 SXM",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "H100 (96 GB HBM2e, 500 W)": "H100 SXM",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA B200": "B200 SXM",
    "NVIDIA RTX A6000": "RTX A6000",
    "RTX 3090 (280 W limit, no NVLink)": "RTX 3090",
    "RTX 4090 (dual, PCIe 4 x16, 128 GB host)": "RTX 4090",
    "A100": "A100 SXM 80GB",
    "A100-SXM4-40GB": "A100 SXM 40GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB",
    "NVIDIA L4": "L4",
    "Tesla V100-PCIE-32GB": "V100 PCIe 32GB",
    "AMD Instinct MI100": "MI100",
    "AMD Instinct MI210": "MI210",
    "AMD Instinct MI250": "MI250",
}
"""Hardware of a row -> the name of its datasheet."""
DOUBTED = {
    "SuperBench": "fp16 weights and a classification head, or TF32 left open",
    "NVIDIA developer blog": "not physical",
    "PEFT method comparison": "lengths vary: no static shape is such a step",
    "axolotl": "micro-batch and checkpointing not stated",
    "TRL": "context parallelism, and a first posting that its author says was inflated",
    "marin": "Megatron in fp8, a shape defined elsewhere",
    "verl": "a loop of reinforcement learning, lengths not stated",
    "NeMo RL": "a loop of reinforcement learning, or rows that may not be full",
    "Exxact": "batch, length and rank not stated",
    "NeMo AutoModel": "expert or tensor parallelism of other kernels; checkpointing not beside the table",
    "pith-train": "torchtitan's grouped experts and selective checkpointing, which plan does not join",
    "LitGPT Thunder": "batch not stated",
    "torchao low-bit": "batch and length not stated",
    "torchtune memory and speed": "optimizer and checkpointing not stated",
    "Transformer Engine HF": "the GPU is not stated",
    "Transformer Engine advanced": "the GPU is not stated",
    "accelerate": "the GPU is not stated",
    "nanoGPT": "the GPU is not stated",
}
"""First words of a source -> why its rows are listed apart."""
GIB, GB = 2**30, 10**9
UNITS = {"s": 1.0, "ms": 1e-3, "GiB": GIB, "GB": GB}
TIMES = ("step_time", "forward_backward_time", "iteration_time", "fwd_plus_bwd_time", "time_of_1024_samples")
PEAKS = ("peak_memory", "peak_memory_per_gpu", "peak_memory_active")
Wanted = tuple[dict[str, Any], str]
"""Settings of the trial, none if the row's model or loop is not expressed; why not, else the kind."""


@dataclass(frozen=True, kw_only=True)
class OtherCell:
    source: str
    what: str
    device: str
    published: float
    """Seconds of a step, or bytes."""
    kind: str
    is_peak: bool
    is_rl: bool
    """Whether the trainer does reinforcement learning, whose loop `plan` does not have."""
    measured: str
    """The day, if the row states it."""
    config: TrialConfig | None = None
    why: str | None = None
    """Why `plan` does not plan it, or why it is listed apart."""


def other_cells(folder: Path, sources: Collection[str]) -> Iterator[OtherCell]:
    """Yield each published step and peak of these sources of READERS and DOUBTED, or the reason why it is apart."""
    for name in FILES:
        with (folder / name).open(newline="") as file:
            for row in csv.DictReader(file):
                known = [first for first in sources if row["source"].startswith(first)]
                throughput = row["unit"] == "tokens/s" and "torchtune" in row["source"]
                if known and row["value"] and (row["metric"] in (*TIMES, *PEAKS) or throughput):
                    yield _cell(row, known[0])


def _cell(row: dict[str, str], first: str) -> OtherCell:
    settings, kind = ({}, DOUBTED[first]) if first in DOUBTED else READERS[first](row)
    ranks, is_peak = int(settings.get("world_size", 1)), row["metric"] in PEAKS
    workload = "ddp" if ranks > 1 else "timing"
    config, why = None, None if settings else kind
    published = float(row["value"]) * UNITS.get(row["unit"], 1.0)
    if settings:
        asked = {"loss": "cross_entropy"} | settings | {"workloads": workload, "device": "cuda"}
        try:
            config = single_trial([f"{name}={value}" for name, value in asked.items()], code=str(MODELS)).config
            why = why_not(config, workload)
        except RequestError as error:
            why = str(error)
    device = DEVICES.get(row["hardware"], row["hardware"])
    if config and row["metric"] == "time_of_1024_samples":
        published *= config.batch_size * ranks / 1024
    if config and row["unit"] == "tokens/s":
        published = config.batch_size * config.context_length / published
    last = re.split(r", | \+ ", row["framework"])[-1]
    what = f"{row['model']} {row['seq_len']} x {row['batch']} on {row['n_gpus']}, {last}"
    is_rl = " RL" in row["model"]
    kind = "memory" if is_peak else f"{kind}, RL" if is_rl else kind
    day = re.search(r"measured (\d{4}-\d\d-\d\d)", row["notes"])
    return OtherCell(source=first, what=what, device=device, published=published, kind=kind,
                     is_peak=is_peak, is_rl=is_rl, config=config, why=why, measured=day[1] if day else "")  # fmt: skip


def _neusight(row: dict[str, str]) -> Wanted:
    """Forward and backward alone: the forward times have allocations of the driver in them. Four GPUs run Megatron's
    GPT (core_r0.5.0, collect_label_distributed.py), for which lmsweep's model of that size stands: no other is divided.
    In float32 its attention is written out around PyTorch's softmax."""
    if row["parallelism"].startswith("tensor parallel 4"):
        width = int(row["d_model"])
        return {"d_model": width, "d_ff": 4 * width, "num_layers": row["n_layer"], "num_heads": row["n_head"],
                "vocab_size": 50688, "feed_forward": "gelu", "attention": "naive_softmax", "precision": "fp32",
                "mode": "forward_backward", "loss": "eager", "context_length": row["seq_len"],
                "batch_size": row["batch"], "world_size": 4, "tp": 4, "ddp": "naive"}, "TP"  # fmt: skip
    if row["model"] not in NEUSIGHT or row["n_gpus"] != "1":
        return {}, "this model is not expressed here, or stages of Megatron, or its replicas"
    return {"model": f"hf:{NEUSIGHT[row['model']]}.json", "attention": "naive", "precision": "fp32",
            "mode": "forward_backward", "context_length": row["seq_len"],
            "batch_size": row["batch"]}, "fp32"  # fmt: skip


def _prime_rl(row: dict[str, str]) -> Wanted:
    """Two micro-batches of one sequence on each GPU; `torch.optim.AdamW` as it is."""
    shape = next((shape for name, shape in SHAPES.items() if f"/{name}" in row["model"]), None)
    if shape is None:
        return {}, "this model is not expressed here"
    if "offload" in row["parallelism"].split(";")[1]:
        return {}, "inputs of blocks wait on the host, which plan does not have"
    if " RL" in row["model"] and row["metric"] in PEAKS:
        return {}, "head and loss in pieces, whose memory plan does not predict"
    ranks = int(row["n_gpus"])
    asked = shape | {
        "context_length": row["seq_len"],
        "batch_size": 2,
        "accumulate": 2,
        "precision": "bf16",
        "compile": "block",
        "checkpointing": "block",
        "optimizer": "adamw_foreach",
        "attention": "sdpa_cudnn" if row["framework"].endswith("attention_3") else "sdpa_flash",
    }
    if ranks > 1:
        asked |= {"world_size": ranks, "ddp": "fsdp", "gather": "bf16"}
    if rank := re.search(r"LoRA r=(\d+)", row["model"]):
        asked |= {"adapter": "lora", "adapter_args.rank": rank[1]}
    return asked, "MoE" if "num_experts" in shape else "LoRA" if "adapter" in asked else "dense 16 bit"


def _fsdp_qlora(row: dict[str, str]) -> Wanted:
    """Hugging Face's Llama, with the default rank of its script."""
    name, _, method = row["model"].partition(" ")
    if name != "Llama-2-7b" or "offload" in row["parallelism"]:
        return {}, "this model is not expressed here"
    ranks, is_whole = int(row["n_gpus"]), "DDP" in row["parallelism"]
    return {"model": f"hf:{name.lower()}.json", "adapter": method.lower(), "adapter_args.rank": 64,
            "context_length": row["seq_len"], "batch_size": row["batch"], "precision": "bf16_pure",
            "attention": "sdpa", "checkpointing": "block", "world_size": ranks,
            "ddp": "torch" if is_whole else "fsdp"}, "LoRA"  # fmt: skip


def _qwen(row: dict[str, str]) -> Wanted:
    """Eight micro-batches of a sequence; finetune.py adapts with rank 64 and loads weights in bf16."""
    name, _, method = row["model"].partition(" ")
    if method != "LoRA":
        return {}, {"full": "DeepSpeed's ZeRO-2 in one process", "Q-LoRA": "GPTQ's unpacking and DeepSpeed"}.get(
            method, "adapters beside trained embeddings, or DeepSpeed's ZeRO-3")  # fmt: skip
    return SHAPES[name] | {"adapter": "lora", "adapter_args.rank": 64, "context_length": row["seq_len"],
            "batch_size": 8, "accumulate": 8, "precision": "bf16_pure", "attention": "sdpa_flash",
            "checkpointing": "block"}, "LoRA"  # fmt: skip


def _litgpt(row: dict[str, str]) -> Wanted:
    """The longest sample decides the peak. LoRA of queries and values with rank 8, by its script's defaults."""
    name = row["model"].replace("Llama 2 ", "Llama-2-").removesuffix(" LoRA").replace("B", "b")
    if name not in SHAPES:
        return {}, "this model is not expressed here"
    return SHAPES[name] | {"adapter": "lora", "adapter_args.rank": 8, "adapter_args.targets": "query value",
            "context_length": 1304, "batch_size": int(float(row["batch"])), "precision": "bf16_pure",
            "attention": "sdpa"}, "LoRA"  # fmt: skip


def _torchtune(row: dict[str, str]) -> Wanted:
    """Each line of its table adds to the one before."""
    steps = {"packed dataset": {}, "compile": {"compile": "block"}, "chunked cross entropy": {"loss": "chunked"},
             "activation checkpointing": {"checkpointing": "block"}}  # fmt: skip
    last = row["framework"].split(" + ")[-1]
    if last not in steps:
        return {}, "sequences are not full" if "baseline" in last else "an update in backward, or inputs on the host"
    asked = SHAPES[row["model"]] | {"context_length": 4096, "batch_size": 2, "precision": "bf16_pure",
                                    "attention": "sdpa"}  # fmt: skip
    for name, settings in steps.items():
        asked |= settings
        if name == last:
            break
    return asked, "dense 16 bit"


def _layer(row: dict[str, str]) -> Wanted:
    """One layer, forward and backward: MPT's, without the dropout, and with a head of 64 words."""
    if row["framework"] != "TE Unfused + TE Attention":
        return {}, "attention is written out, the layer fused, or in float8"
    return {"model": "mpt.py:build", "model_args.heads": 32, "model_args.layers": 1, "model_args.width": 4096,
            "vocab_size": 64, "context_length": 2048, "batch_size": 8, "precision": "bf16_pure",
            "mode": "forward_backward", "attention": "sdpa_cudnn"}, "dense 16 bit"  # fmt: skip


def _torchtitan(row: dict[str, str]) -> Wanted:
    """Peaks alone: published_fleet has its times."""
    if row["metric"] not in PEAKS:
        return {}, "among those of many GPUs"
    return SHAPES[row["model"]] | {"context_length": 8192, "batch_size": 2, "world_size": 8, "ddp": "fsdp",
            "gather": "bf16", "precision": "fp8_tensorwise" if "fp8" in row["precision"] else "bf16",
            "compile": "block" if "compile" in row["framework"] else "none", "checkpointing": "selective",
            "attention": "sdpa_flash"}, "memory"  # fmt: skip


READERS: dict[str, Callable[[dict[str, str]], Wanted]] = {
    "NeuSight": _neusight,
    "prime-rl": _prime_rl,
    "AnswerDotAI": _fsdp_qlora,
    "Qwen README": _qwen,
    "LitGPT resource tables": _litgpt,
    "torchtune optimization flags": _torchtune,
    "Transformer Engine getting started": _layer,
    "torchtitan": _torchtitan,
}
"""First words of a source -> the function that expresses a row."""
