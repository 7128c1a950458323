"""Convert a list of published numbers of 2022 to 2026 to the store analysis/reference/public-benchmarks.

python -m benchmarks.public_benchmarks FACTS.csv [FOLDER]

The file has the columns source, repo_path, hardware, n_gpus, framework, model, head_dim, seq_len, batch, precision,
metric, value, unit and notes. Kept are numbers of one GPU whose configuration a sweep can name; LEFT_OUT says of the
others why not.
"""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.published import MODES, dimensions_of, identified, write_store
from lmsweep.trials.analytic.flop_conventions import counted_flops, share_of_scores
from lmsweep.trials.analytic.formulas import attention_flops, forward_flops
from lmsweep.trials.results.environment import NOT_OURS
from lmsweep.trials.results.flag_meanings import CONDITIONS
from lmsweep.trials.spec.model_sizes import SIZES, ModelSize, size_name

FOLDER = Path(__file__).parents[1] / "analysis" / "reference"

TAKEN = datetime(2026, 11, 22, tzinfo=UTC)

WIDTH, TOKENS = 2048, 16384
"""Of FlashAttention's figures: hidden dimension, and tokens of all sequences (of FlashAttention-3 by its paper, Shah et
al. 2024, section 4.1)."""

LAYER = ModelSize(d_model=4096, d_ff=16384, num_layers=1, num_heads=32, feed_forward="gelu")
ONE_LAYER = size_name(LAYER)
"""The layer of Transformer Engine's documentation."""

KERNELS = {
    "PyTorch standard attention": "naive_softmax",
    "standard attention": "naive_softmax",
    "FlashAttention-2": "sdpa_flash",
    "cuDNN": "sdpa_cudnn",
}
"""Implementation in a figure -> attention that is the same in lmsweep; the others it does not have."""

MODELS = {
    "NousResearch/Llama-3.2-1B": ("llama-3.2-1b", 128_256),
    "NousResearch/Hermes-3-Llama-3.2-3B": ("llama-3.2-3b", 128_256),
    "NousResearch/Hermes-3-Llama-3.1-8B": ("llama-3.1-8b", 128_256),
    "NousResearch/Nous-Hermes-Llama2-13b": ("llama-2-13b", 32_000),
    "HF Llama 3.2 1B": ("llama-3.2-1b", 128_256),
    "Llama-2-7b": ("llama-2-7b", 32_000),
    "Meta-Llama-3-8B": ("llama-3.1-8b", 128_256),
    "TinyLlama 1.1B": ("tinyllama-1.1b", 32_000),
    "GPT-2 124M": ("gpt2", 50_304),
    "GPT 1.5B": ("gpt2-xl", 50_304),
    "one transformer layer (GELU MLP, biases, dropout 0.1)": (ONE_LAYER, None),
    "one transformer layer": (ONE_LAYER, None),
}
"""Model in the source -> size of the same dimensions and vocabulary."""

OTHER = {"other_kernel": True}
TE_LAYER = {"precision": "bf16_pure", "layer_alone": True}
TE_FLOAT8 = {"precision": "fp8_tensorwise", "layer_alone": True, **OTHER}

STEPS: dict[tuple[str, str], dict[str, Any]] = {
    # From the scripts beside the numbers: weights in 16 bits (fp16, as no_grad is off, for the forward pass).
    ("accelerate regional compilation", "Baseline"): {"precision": "fp16_pure"},
    ("accelerate regional compilation", "Full compilation"): {"precision": "fp16_pure", "compile": "model"},
    ("accelerate regional compilation", "Regional compilation"): {"precision": "fp16_pure", "compile": "block"},
    ("Transformer Engine HF Llama tutorial", "HF transformers"): {"precision": "bf16_pure"},
    ("Transformer Engine HF Llama tutorial", "HF with TE layer"): {"precision": "bf16_pure", **OTHER},
    # The description of the issue: one sequence of 2048 tokens.
    ("Lightning-AI/lightning-thunder/issues/1506", "eager"): {
        "precision": "bf16_pure", "context_length": 2048, "batch_size": 1,
    },
    ("Lightning-AI/lightning-thunder/issues/1506", "torch.compile"): {
        "precision": "bf16_pure", "compile": "model", "context_length": 2048, "batch_size": 1,
    },
    # The defaults of litgpt's pretraining: micro-batches of 4 sequences of the model's context, precision bf16-true.
    ("LitGPT Thunder extension", "eager"): {
        "precision": "bf16_pure", "phase": "forward_backward", "context_length": 2048, "batch_size": 4,
        "shape_inferred": True,
    },
    # Their scores are written out and have no mask, unless the attention is Transformer Engine's, which is causal.
    ("Transformer Engine getting started", "Baseline PyTorch"): TE_LAYER
    | {"attention": "naive_softmax", "causal": False},
    ("Transformer Engine getting started", "TE Unfused"): TE_LAYER
    | {"attention": "naive_softmax", "causal": False, **OTHER},
    ("Transformer Engine getting started", "TE Unfused + TE Attention"): TE_LAYER | OTHER,
    ("Transformer Engine getting started", "TE Unfused + TE Attention + FP8"): TE_FLOAT8,
    ("Transformer Engine getting started", "TE Fused + TE Attention + FP8"): TE_FLOAT8,
    ("Transformer Engine getting started", "TE TransformerLayer + FP8"): TE_FLOAT8,
    ("Transformer Engine advanced optimizations", "te.TransformerLayer"): TE_FLOAT8,
    ("nanoGPT README", "eager"): {"precision": "bf16", "shape_inferred": True},
    ("nanoGPT README", "torch.compile"): {"precision": "bf16", "compile": "model", "shape_inferred": True},
    **{
        ("pytorch/ao/issues/1297", framework): {"precision": "bf16", "compile": "model", "shape_inferred": True}
        for framework in ("bf16 autocast + compile", "bf16 + compile", "bf16 + compile, later nightly")
    },
    # Its scales come from earlier steps ("delayed"); torchao has kept only scales of the tensors themselves.
    ("pytorch/ao/issues/1297", "torchao float8 delayed + compile, after PR 1306"): {
        "precision": "fp8_tensorwise", "compile": "model", "shape_inferred": True, **OTHER,
    },
}  # fmt: skip
"""Source and implementation -> what its script or text says beyond the columns of the file."""

PHASES = {"fwd_plus_bwd_time": "forward_backward", "forward_time 4x128": "forward"}

LEFT_OUT = {
    "FlashAttention SM90 masking note": "batch and heads are not stated",
    "ml-engineering MAMF table": "the product is not square",
    "torchao low-bit optimizers": "batch and length are not stated",
    "torchao blockwise FP8 MoE": "a grouped product alone",
    "torchtune optimization flags": "peaks of memory and tokens per second on data whose padding is not stated",
    "torchtune memory and speed": "the optimizer steps during backward",
    "LitGPT resource tables": "low-rank adaptation",
    "nanochat log 2026-02-02": "a product that is not square",
    "CS336 2026 handout": "saved bytes of single blocks",
    "Liger-Kernel's other kernels": "a loss without the head, a norm, a feed-forward layer; and all peaks of memory",
    "float8 with weights in bfloat16": "lmsweep's float8 keeps them in float32 (Llama, Phi-3)",
    "Thunder": "another compiler",
    "GPT2-XL of October 2024": "the context length is not stated",
}
"""Source, or kind of number -> why lmsweep cannot name its configuration."""


def facts(path: str) -> pd.DataFrame:
    """Every kept number of the file."""
    raw = pd.read_csv(path)
    raw = raw[raw["n_gpus"] == 1]
    rows = [row for fact in raw.to_dict("records") for row in (*_attention(fact), *_loss(fact), *_step(fact))]
    frame = pd.DataFrame(rows)
    whole = ["d_model", "num_heads", "context_length", "batch_size", "vocab_size"]
    texts = [name for name in frame.columns if name not in (*whole, *CONDITIONS, "value", "printed", "causal")]
    return frame.astype(dict.fromkeys(whole, "Int64") | dict.fromkeys(texts, "str") | {"causal": "boolean"})


def _attention(fact: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    if fact["model"] != "attention" or fact["source"] in LEFT_OUT:
        return
    forward_only = fact["metric"] == "fwd_rate"
    context, causal = int(fact["seq_len"]), not fact["notes"].startswith("not causal")
    shape = {"d_model": WIDTH, "context_length": context, "batch_size": TOKENS // context}
    once = attention_flops(phase="forward", **shape)
    share = share_of_scores("hardware", causal=causal)
    work = counted_flops("hardware", other=0, attention=once, forward=1, backward=not forward_only, share=share)
    yield {
        **_common(fact),
        "workload": "attention",
        "model": None,
        **shape,
        "num_heads": WIDTH // int(fact["head_dim"]),
        "vocab_size": None,
        "causal": causal,
        "precision": fact["precision"].replace("/", " or "),
        "compile": "none",
        "attention": KERNELS.get(fact["framework"]),
        "phase": "forward" if forward_only else "step",
        "value": work / (fact["value"] * 1e12),
        **dict.fromkeys(CONDITIONS, False),
        "from_rate": True,
        "read_off_figure": True,
        "shape_inferred": forward_only,
        "other_kernel": fact["framework"] not in KERNELS,
    }


def _loss(fact: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    if fact["model"] != "fused_linear_cross_entropy" or fact["metric"] != "full_speed":
        return
    tokens, _, shape = fact["notes"].partition(";")
    width = json.loads(shape.partition("; median")[0])
    yield {
        **_common(fact),
        "workload": "loss",
        "model": None,
        "d_model": width["H"],
        "context_length": int(tokens.removeprefix("BT=")),
        "batch_size": 1,
        "num_heads": None,
        "vocab_size": width["V"],
        "causal": None,
        "precision": fact["precision"],
        "compile": "none",
        "loss": "liger" if fact["framework"].startswith("liger") else "cross_entropy",
        "phase": "step",
        "value": fact["value"] / 1e3,
        **dict.fromkeys(CONDITIONS, False),
    }


def _step(fact: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    source, metric = _source(fact), fact["metric"]
    said = STEPS.get((source, fact["framework"]))
    if said is None or (source == "Transformer Engine HF Llama tutorial" and fact["precision"] == "fp8"):
        return
    name, vocabulary = MODELS[fact["model"]]
    size = SIZES.get(name, LAYER)
    shape = {
        "context_length": int(said.get("context_length", fact["seq_len"])),
        "batch_size": int(said.get("batch_size", fact["batch"])),
    }
    if metric == "model_rate":
        once = forward_flops(**size.terms, vocab_size=vocabulary, **shape)
        seconds = 3 * once / (fact["value"] * 1e12)
    else:
        seconds = fact["value"] / 1e3
    yield {
        **_common(fact),
        "workload": "timing",
        "model": name,
        "d_model": size.d_model,
        "num_heads": size.num_heads,
        "vocab_size": vocabulary,
        "causal": True,
        "compile": "none",
        "attention": "sdpa",
        "phase": PHASES.get(metric, "step"),
        "value": seconds,
        **dict.fromkeys(CONDITIONS, False),
        "from_rate": metric == "model_rate",
        **said,
        **shape,
    }


def _source(fact: dict[Any, Any]) -> str:
    return str(fact["repo_path"] if fact["source"] == "github issue text" else fact["source"])


def _common(fact: dict[Any, Any]) -> dict[str, Any]:
    return {
        "source": _source(fact),
        "reference": fact["repo_path"],
        "hardware": fact["hardware"],
        "implementation": fact["framework"],
        "metric": "time",
        "unit": "s",
        "printed": fact["value"],
        "printed_unit": fact["unit"],
        "note": fact["notes"],
    }


def main() -> None:
    """Write the store."""
    path, *target = sys.argv[1:]
    frame = facts(path)
    write(frame, Path(target[0]) if target else FOLDER)
    print(frame.groupby(["workload", "source"]).size().to_string())


def write(frame: pd.DataFrame, folder: Path) -> None:
    timed = frame["workload"] == "timing"
    modes = frame["phase"].map({name: mode for name, (mode, _) in MODES.items()})
    phases = frame["phase"].map({name: phase for name, (_, phase) in MODES.items()})
    flags = [[word for word in CONDITIONS if row.get(word)] for _, row in frame.iterrows()]
    rows = frame.drop(columns=[*CONDITIONS, "value", "hardware", "source", "phase"], errors="ignore").assign(
        **dimensions_of(frame["model"].where(timed), **{ONE_LAYER: LAYER})
        | {name: frame[name] for name in ("d_model", "num_heads")},
        sweep=frame["source"] + ", " + frame["implementation"],
        device_name=frame["hardware"],
        device="cuda",
        status="ok",
        flags=flags,
        mode=modes.where(timed),
        phase=phases.where(timed, frame["phase"]),
        samples=[[value] for value in frame["value"]],
        measuring_version=NOT_OURS,
    )
    print(write_store(identified(rows, TAKEN), folder / "public-benchmarks"))


if __name__ == "__main__":
    main()
