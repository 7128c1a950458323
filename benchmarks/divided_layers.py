"""Published steps of trainers that divide layers among GPUs, as `plan` plans them: published-tensor-parallel.csv.

A configuration is the nearest that `plan` has. lmsweep divides tokens between blocks and the vocabulary, as torchtitan
does; Megatron's fused norms and activations are those of compiled blocks.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.published_others import DEVICES, OtherCell
from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.analytic.rates.operators import Operator, Operators
from lmsweep.trials.analytic.rates.rank_schedule import resized
from lmsweep.trials.analytic.rates.rate_set import Network
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.rules.combination_rules import why_not

TABLE = Path(__file__).with_name("published-tensor-parallel.csv")
"""In the columns of published-2026-11.csv. analysis/reference/SOURCES.md has the sources."""
ADAPTERS = {"InternEvo": 6.25e9, "vTrain": 12.5e9}
"""First word of a source -> B/s of a GPU between nodes; of others one adapter of 400 Gb/s."""
FEED_FORWARD = {4096: 14336, 8192: 28672, 16384: 53248, 2048: 8192, 3072: 8192}
"""Width of a Llama -> that of its feed-forward layers."""
H100_PEAK = 989e12


def divided_cells() -> Iterator[tuple[OtherCell, Network | None]]:
    """Yield each step of TABLE, or the reason why it is apart, and what connects its nodes."""
    with TABLE.open(newline="") as file:
        for row in csv.DictReader(file):
            settings, ranks = _settings(row), int(row["n_gpus"])
            why, config = settings if isinstance(settings, str) else None, None
            if not isinstance(settings, str):
                asked = settings | {"workloads": "ddp", "device": "cuda", "world_size": ranks}
                try:
                    config = single_trial([f"{name}={value}" for name, value in asked.items()]).config
                    why = why_not(config, "ddp")
                except RequestError as error:
                    why = str(error)
            first = row["source"].split(" ")[0]
            hardware = row["hardware"].split(" (")[0].replace("nvidia_a100-sxm4-80gb", "A100")
            adapter = ADAPTERS.get(first, 50e9)
            network = Network(gpus=8, bytes_per_second=adapter, source="") if ranks > 8 else None
            shape = f"{row['model']} {row['seq_len']} x {row['batch']} on {ranks}"
            what = f"{shape}, {row['parallelism'].split(', seq')[0]}"
            yield (
                OtherCell(source=first, what=what, device=DEVICES.get(hardware, "H100 SXM"), kind="TP",
                          published=_seconds(row, config) if config else 0.0, is_peak=False, is_rl=False, measured="",
                          config=config, why=why),
                network,
            )  # fmt: skip


def _settings(row: dict[str, str]) -> dict[str, Any] | str:
    """Return the settings of the trial, or why there are none."""
    stated, width = row["parallelism"], int(row["d_model"])
    if "async" in row["framework"]:
        return "products send their parts themselves, which plan does not have"
    if "attention alone" in stated:
        return "attention alone is computed again, which plan does not have"
    tp, micro = int(re.findall(r"TP (\d+)", stated)[0]), int((re.findall(r"(\d+) micro-batches", stated) or ["1"])[0])
    replicas = int(row["n_gpus"]) // tp
    is_gpt = row["framework"].startswith("Megatron") and "Llama" not in row["model"]
    asked: dict[str, Any] = {
        "d_model": width, "num_layers": row["n_layer"], "num_heads": row["n_head"], "context_length": row["seq_len"],
        "batch_size": int(row["batch"]) * micro, "accumulate": micro, "tp": tp, "compile": "block",
        "precision": "fp8_tensorwise" if "float8" in row["precision"] else "bf16",
        "loss": "eager" if is_gpt or "nanotron" in row["framework"] else "compiled",
    }  # fmt: skip
    if is_gpt:
        multiple = 128 * tp
        vocabulary = -(-(51200 if "22B" in row["model"] else 50257) // multiple) * multiple
        asked |= {"d_ff": 4 * width, "feed_forward": "gelu", "vocab_size": vocabulary, "attention": "naive"}
        asked |= {"precision": "bf16_pure", "ddp": "naive", "checkpointing": "block"}
        return asked
    asked |= {"d_ff": FEED_FORWARD[width], "vocab_size": 128256, "attention": "sdpa_flash"}
    if "nanotron" in row["framework"]:
        asked |= {"vocab_size": 131072, "tied_head": "true" if width < 4096 else "false"}
    elif row["framework"].startswith("InternEvo"):
        asked |= {"vocab_size": 103168, "d_ff": 11008}
    else:
        asked |= {"num_kv_heads": 16 if width == 16384 else 8}
    if "Megatron" in row["framework"]:
        asked["attention"] = "sdpa_cudnn"
    if "torchtitan" in row["framework"]:
        asked |= {"ddp": "fsdp", "gather": "bf16", "checkpointing": "block" if "full" in stated else "selective"}
    elif replicas == 1:
        asked |= {"ddp": "naive", "precision": "bf16_pure"}
    elif "zero1 4" in stated and replicas > 4:
        asked |= {"ddp": "hsdp", "shards": 4, "reshard": "false", "gather": "bf16"}
    else:
        asked |= {"ddp": "zero2", "gather": "bf16"}
    return asked


def _seconds(row: dict[str, str], config: TrialConfig) -> float:
    tokens, value = config.batch_size * config.context_length, float(row["value"])
    if row["metric"] == "step_time":
        return value * (1e-3 if row["unit"] == "ms" else 1.0)
    if row["metric"] == "throughput_per_gpu":
        return tokens / config.tp / value
    layers, width = int(row["n_layer"]), int(row["d_model"])
    weights = parameter_count(**config.size.terms, vocab_size=config.vocab_size)
    weights -= 0 if config.tied_head else config.vocab_size * width  # an embedding multiplies nothing
    rate = value * 1e12 if row["unit"] == "TFLOP/s" else value / 100 * H100_PEAK
    return tokens * (6 * weights + 12 * layers * width * config.context_length) / (rate * config.tp)


_operators = cache(step_operators)


def operators_of(cell: OtherCell) -> Operators:
    """Return the operators of a rank; those of many replicas follow from those of two, which run faster."""
    config = cell.config
    assert config, "others are apart"
    replicas, few = config.world_size // config.tp, 2 * config.shard_ranks if config.ddp == "hsdp" else 2
    if few < replicas:
        fewer = replace(config, world_size=few * config.tp)
        operators = resized(_operators(fewer), fewer, config.world_size)
    else:
        operators = _operators(config)
    return tuple(_as_zero1(operators, config, cell.source)) if config.ddp in ("zero2", "hsdp") else operators


def _as_zero1(operators: Operators, config: TrialConfig, source: str) -> Iterator[Operator]:
    """Yield the operators with what ZeRO-1 sends, which `tp` is not planned with: weights are gathered once a step.
    InternEvo's gradients are in 16 bits (solver/optimizer/hybrid_zero_optim.py), others' in float32."""
    for one in operators:
        is_of_layers = one.stride == 1 and one.ranks == config.tp
        if one.name == "split_with_sizes_copy" or (one.name == "all_gather" and not is_of_layers):
            yield replace(one, count=max(1, one.count // config.accumulate))
        elif source == "InternEvo" and one.stream == "communication" and not is_of_layers:
            yield replace(one, dtype="bfloat16", bytes=one.bytes // 2)
        else:
            yield one
