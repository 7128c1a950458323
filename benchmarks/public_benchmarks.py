"""Convert a list of published numbers of 2022 to 2026 to analysis/reference/public-benchmarks.parquet.

python benchmarks/public_benchmarks.py FACTS.csv [TARGET.parquet]

The file has the columns source, repo_path, hardware, n_gpus, framework, model, head_dim, seq_len, batch, precision,
metric, value, unit and notes. Kept are numbers of one GPU whose configuration a sweep can name; LEFT_OUT says of the
others why not.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from lmsweep.analysis.reference.public_benchmarks import CONDITIONS
from lmsweep.trials.analytic.flop_conventions import counted_flops, share_of_scores
from lmsweep.trials.analytic.formulas import attention_flops, forward_flops
from lmsweep.trials.spec.model_sizes import SIZES

TARGET = Path(__file__).parents[1] / "analysis" / "reference" / "public-benchmarks.parquet"

WIDTH, TOKENS = 2048, 16384
"""Of FlashAttention's figures: hidden dimension, and tokens of all sequences (of FlashAttention-3 by its paper, Shah et
al. 2024, section 4.1)."""

KERNELS = {
    "PyTorch standard attention": "naive_softmax",
    "standard attention": "naive_softmax",
    "FlashAttention-2": "sdpa_flash",
    "cuDNN": "sdpa_cudnn",
}
"""Implementation in a figure -> attention that is the same in lmsweep; the others it does not have."""

COMPILED = {"Baseline": "none", "eager": "none", "Full compilation": "model", "Regional compilation": "block"}

MODELS = {
    "NousResearch/Llama-3.2-1B": ("llama-3.2-1b", 128_256),
    "NousResearch/Hermes-3-Llama-3.1-8B": ("llama-3.1-8b", 128_256),
    "Meta-Llama-3-8B": ("llama-3.1-8b", 128_256),
    "GPT-2 124M": ("gpt2", 50_304),
    "GPT 1.5B": ("gpt2-xl", 50_304),
}
"""Model in the source -> size of the same dimensions and vocabulary."""

LEFT_OUT = {
    "FlashAttention SM90 masking note": "batch and heads are not stated",
    "ml-engineering MAMF table": "the product is not square",
    "Transformer Engine getting started": "one layer without embedding and head",
    "Transformer Engine advanced optimizations": "one layer without embedding and head",
    "torchao low-bit optimizers": "batch and length are not stated",
    "torchao blockwise FP8 MoE": "a grouped product alone",
    "torchtune optimization flags": "each line has optimizations that lmsweep lacks",
    "torchtune memory and speed": "the optimizer steps during backward",
    "LitGPT Thunder extension": "batch and length are not stated",
    "LitGPT resource tables": "low-rank adaptation",
    "nanochat log 2026-02-02": "a product that is not square",
    "CS336 2026 handout": "saved bytes of single blocks",
    "Liger-Kernel benchmark data": "losses and layers alone",
}


def facts(path: str) -> pd.DataFrame:
    """Every kept number of the file."""
    raw = pd.read_csv(path)
    raw = raw[raw["n_gpus"] == 1]
    rows = [row for fact in raw.to_dict("records") for row in (*_attention(fact), *_step(fact))]
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
        "from_rate": True,
        "read_off_figure": True,
        "shape_inferred": forward_only,
        "other_kernel": fact["framework"] not in KERNELS,
    }


def _step(fact: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    source, metric = fact["source"], fact["metric"]
    if fact["model"] not in MODELS or source in LEFT_OUT:
        return
    if "TE" in fact["framework"] or "fp8" in str(fact["precision"]):
        return  # its layers are another library's
    name, vocabulary = MODELS[fact["model"]]
    shape = {"context_length": int(fact["seq_len"]), "batch_size": int(fact["batch"])}
    if metric == "model_rate":
        once = forward_flops(**SIZES[name].terms, vocab_size=vocabulary, **shape)
        seconds = 3 * once / (fact["value"] * 1e12)
    else:
        seconds = fact["value"] / 1e3
    yield {
        **_common(fact),
        "workload": "timing",
        "model": name,
        "d_model": SIZES[name].d_model,
        **shape,
        "num_heads": SIZES[name].num_heads,
        "vocab_size": vocabulary,
        "causal": True,
        "precision": "bf16" if "bf16" in str(fact["precision"]) else None,
        "compile": COMPILED.get(fact["framework"], "none" if fact["framework"] == "HF transformers" else "model"),
        "attention": "sdpa",
        "phase": "forward" if metric.startswith("forward") else "step",
        "value": seconds,
        "from_rate": metric == "model_rate",
        "read_off_figure": False,
        "shape_inferred": fact["model"] in ("GPT-2 124M", "GPT 1.5B"),
        "other_kernel": False,
    }


def _common(fact: dict[Any, Any]) -> dict[str, Any]:
    return {
        "source": fact["repo_path"] if fact["source"] == "github issue text" else fact["source"],
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
    """Write the table."""
    path, *target = sys.argv[1:]
    frame = facts(path)
    place = Path(target[0]) if target else TARGET
    frame.to_parquet(place, index=False, compression="zstd")
    print(f"{len(frame)} rows, {place.stat().st_size} bytes in {place}")
    print(frame.groupby(["workload", "source"]).size().to_string())


if __name__ == "__main__":
    main()
