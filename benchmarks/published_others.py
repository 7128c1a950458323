"""Steps that other trainers published in 2026-11, as `plan` plans them: NeuSight's labels, prime-rl's baselines.

A row whose caveat says that the number is not what it seems, or that leaves open what was run, is listed apart, as one
that `plan` refuses is.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.rules.combination_rules import why_not

MODELS = Path(__file__).parent / "published_models"
HUGGING_FACE = {"GPT-2 Large": "gpt2-large", "GPT3-XL as configured (2.8B)": "gpt3-xl", "GPT3-2.7B": "gpt3-2.7b",
                "OPT-1.3B": "opt-1.3b", "BERT-Large": "bert-large"}  # fmt: skip
"""Model of NeuSight -> its configuration in MODELS."""
_SHAPE = ("d_model", "d_ff", "num_layers", "num_heads", "num_kv_heads", "d_head", "tied_head")
QWENS = {
    "Qwen3-0.6B": dict(zip(_SHAPE, (1024, 3072, 28, 16, 8, 128, "true"), strict=True)),
    "Qwen3-4B": dict(zip(_SHAPE, (2560, 9728, 36, 32, 8, 128, "true"), strict=True)),
    "Qwen3-30B-A3B": dict(zip(_SHAPE, (2048, 768, 48, 32, 4, 128, "false"), strict=True))
    | {"num_experts": 128, "active_experts": 8},
}
DEVICES = {
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA B200": "B200 SXM",
    "NVIDIA RTX A6000": "RTX A6000",
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
    "AnswerDotAI": "time of a whole run, start-up perhaps included; QLoRA in ranks",
    "TRL": "context parallelism, and a first posting that its author says was inflated",
    "marin": "Megatron in fp8, a shape defined elsewhere",
    "verl": "a loop of reinforcement learning, lengths not stated",
    "NeMo RL": "a loop of reinforcement learning, or rows that may not be full",
    "Exxact": "batch, length and rank not stated",
    "NeMo AutoModel": "expert or tensor parallelism of other kernels; checkpointing not beside the table",
    "pith-train": "torchtitan's grouped experts and selective checkpointing, which plan does not join",
}
"""First word of a source -> why its rows are listed apart."""
STEPS = ("step_time", "forward_backward_time")


@dataclass(frozen=True, kw_only=True)
class OtherCell:
    source: str
    what: str
    device: str
    seconds: float
    kind: str
    config: TrialConfig | None = None
    why: str | None = None
    """Why `plan` does not plan it, or why it is listed apart."""


def other_cells(path: str) -> Iterator[OtherCell]:
    """Yield each published step of published-2026-11.csv: planned, or with the reason why it is not."""
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] in STEPS and row["value"]]
    for row in rows:
        source = row["source"].split(" measured")[0].split(" benchmark")[0]
        doubt = next((why for first, why in DOUBTED.items() if source.startswith(first)), None)
        settings, kind = ({}, "") if doubt else _neusight(row) if source == "NeuSight" else _prime_rl(row)
        workload = "ddp" if int(settings.get("world_size", 1)) > 1 else "timing"
        config, why = None, doubt or (None if settings else "this model is not expressed here")
        if not why:
            asked = settings | {"workloads": workload, "device": "cuda"}
            try:
                config = single_trial([f"{name}={value}" for name, value in asked.items()], code=str(MODELS)).config
                why = why_not(config, workload)
            except RequestError as error:
                why = str(error)
        seconds = float(row["value"]) * (1e-3 if row["unit"] == "ms" else 1.0)
        what = f"{row['model']} {row['seq_len']} x {row['batch']} on {row['n_gpus']}"
        yield OtherCell(source=source, what=what, device=DEVICES.get(row["hardware"], row["hardware"]),
                        seconds=seconds, kind=kind, config=config, why=why)  # fmt: skip


def _neusight(row: dict[str, str]) -> tuple[dict[str, Any], str]:
    """Forward and backward alone: the forward times have allocations of the driver in them."""
    if row["model"] not in HUGGING_FACE or row["n_gpus"] != "1":  # how four GPUs divide a model is not in the row
        return {}, "fp32"
    return {"model": f"hf:{HUGGING_FACE[row['model']]}.json", "attention": "naive", "precision": "fp32",
            "mode": "forward_backward", "context_length": row["seq_len"], "batch_size": row["batch"],
            "loss": "cross_entropy"}, "fp32"  # fmt: skip


def _prime_rl(row: dict[str, str]) -> tuple[dict[str, Any], str]:
    """Two micro-batches of one sequence on each GPU."""
    shape = next((shape for name, shape in QWENS.items() if f"/{name}" in row["model"]), None)
    kind = "MoE" if "A3B" in row["model"] or "A22B" in row["model"] or "INTELLECT" in row["model"] else "dense 16 bit"
    kind = "LoRA" if "LoRA" in row["model"] and kind != "MoE" else kind
    if shape is None or "offload" in row["parallelism"].split(";")[1]:
        return {}, kind
    ranks = int(row["n_gpus"])
    found = shape | {
        "vocab_size": 151936,
        "qk_norm": "true",
        "feed_forward": "swiglu",
        "context_length": row["seq_len"],
        "batch_size": 2,
        "accumulate": 2,
        "precision": "bf16",
        "compile": "block",
        "checkpointing": "block",
        "loss": "cross_entropy",
        "attention": "sdpa_cudnn" if row["framework"].endswith("attention_3") else "sdpa_flash",
    }
    if ranks > 1:
        found |= {"world_size": ranks, "ddp": "fsdp"}
    if rank := re.search(r"LoRA r=(\d+)", row["model"]):
        found |= {"adapter": "lora", "adapter_args": f"rank={rank[1]}"}
    return found, kind
