"""Write public rows that state what ran, and steps of the shipped sets, as claims: a CSV for `lmsweep audit`.

    python -m benchmarks.audit_rows FOLDER OUTPUT.csv

FOLDER is ../shared/data. Nothing of a row is changed; rows whose caveat says that they are not what they seem are left
out (benchmarks/published_others.py has the reasons), as are those that do not train whole steps.
"""

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from lmsweep.analysis import load

CLAIM = dict[str, str]
SETS = ("h100-devices", "h200-devices", "h100-best-grid", "h100-losses", "h200-x2-sharded", "h200-x2-fsdp")
EVERY = {"h100-best-grid": 5}
FILES = ("published-fleet.csv", "published-2026-11.csv", "published-2026.csv", "published-finetuning.csv")
GPUS = {"h100_80gb": "H100 SXM", "a100_80gb": "A100 SXM 80GB", "H100 80GB": "H100 SXM", "A100 80GB": "A100 SXM 80GB",
        "A100": "A100 SXM 80GB", "H100 (96 GB HBM2e, 500 W)": "H100 SXM", "NVIDIA H100": "H100 SXM",
        "DGX-GB300": "GB300", "DGX-GB200": "GB200", "DGX-H100": "H100 SXM", "DGX-B200": "B200 SXM",
        "DGX-B300": "B300 SXM", "RTX 3090 (280 W limit, no NVLink)": "RTX 3090",
        "RTX 4090 (dual, PCIe 4 x16, 128 GB host)": "RTX 4090"}  # fmt: skip


def claims(folder: Path) -> Iterator[CLAIM]:
    for name in FILES:
        with (folder / name).open(newline="") as file:
            rows = [*csv.DictReader(file)]
        together: dict[tuple[str, ...], CLAIM] = {}
        for row in rows:
            if not (claim := _claim(row)):
                continue
            key = (*(claim.get(one, "") for one in KEYS), row["framework"], row["parallelism"])
            together.setdefault(key, {}).update(claim)
        yield from together.values()
    for name in SETS:
        yield from _shipped(name)


KEYS = ("name", "model", "gpus", "context", "batch", "accumulate", "precision", "method", "checkpointing")


def _claim(row: dict[str, str]) -> CLAIM | None:
    reader = next((read for first, read in READERS.items() if row["source"].startswith(first)), None)
    if reader is None or not row["value"]:
        return None
    stated = reader(row)
    if stated is None:
        return None
    device = GPUS.get(row["hardware"], row["hardware"])
    base = {
        "name": row["source"],
        "gpus": f"{row['n_gpus']}x{device}",
        "context": row["seq_len"],
        "batch": row["batch"],
    }
    return {key: value for key, value in (base | stated).items() if value}


def _foundry(row: dict[str, str]) -> CLAIM | None:
    number = {"throughput_per_gpu": "tokens/s/gpu", "MFU": "mfu"}[row["metric"]]
    value = row["value"] + ("%" if number == "mfu" else "")
    return {"model": row["model"], "precision": row["precision"], "compile": "no", "parallel": "fsdp", number: value,
            "accumulate": row["parallelism"].rsplit(" ", 1)[1], "attention": "flash",
            "checkpointing": "block" if "checkpointing True" in row["parallelism"] else "none"}  # fmt: skip


def _titan(row: dict[str, str]) -> CLAIM | None:
    if row["metric"] != "throughput_per_gpu":
        return None
    return {"model": row["model"], "precision": "fp8" if "fp8" in row["precision"] else "bf16",
            "context": row["seq_len"] or "4096", "compile": "yes" if "compile" in row["framework"] else "no",
            "checkpointing": "selective" if "selective" in row["parallelism"] else "none", "parallel": "fsdp",
            "tokens/s/gpu": row["value"]}  # fmt: skip


def _megatron(row: dict[str, str]) -> CLAIM | None:
    number = {"throughput_per_gpu": "tokens/s/gpu", "model_rate_per_gpu": "tflops"}[row["metric"]]
    ways = {name.lower(): count for name, count in re.findall(r"(TP|PP|CP|EP) (\d+)", row["parallelism"])}
    batch = re.search(r"global batch (\d+)", row["parallelism"])
    model = row["model"].replace("_", "-").replace("LLAMA31", "llama-3.1").replace("LLAMA3", "llama-3").lower()
    model = re.sub(r"^gpt oss ", "openai/gpt-oss-", model).replace(" ", "-")
    if any(word in model for word in ("lora", "deepseek", "kimi", "nemotron", "vl", "next")):
        return None  # a method or architecture that audit does not predict
    precision = "fp8" if re.search("[84]", row["precision"]) else "bf16"
    found = {"model": model, "precision": precision, "global_batch": batch[1] if batch else "", number: row["value"]}
    return ways | found | {"compile": "yes", "attention": "te"}


def _prime(row: dict[str, str]) -> CLAIM | None:
    if row["metric"] != "step_time" or "offload" in row["parallelism"].split(";")[1]:
        return None
    rank = "LoRA" in row["model"]
    return {"model": row["model"].split()[0], "precision": "bf16", "compile": "yes", "checkpointing": "block",
            "batch": "1", "accumulate": "2", "method": "lora" if rank else "full", "step_time": row["value"],
            "attention": "fa3" if row["framework"].endswith("attention_3") else "fa2"}  # fmt: skip


def _qwen(row: dict[str, str]) -> CLAIM | None:
    if row["metric"] != "iteration_time":
        return None
    name, _, method = row["model"].partition(" ")
    if method != "LoRA" or row["n_gpus"] != "1":
        return None
    return {"model": name, "method": "lora", "precision": "bf16", "accumulate": "8", "compile": "no",
            "checkpointing": "block", "attention": "fa2", "step_time": row["value"]}  # fmt: skip


def _tune(row: dict[str, str]) -> CLAIM | None:
    if row["metric"] != "throughput" or not row["seq_len"] or "baseline" in row["framework"]:
        return None
    if "offload" in row["framework"] or "in backward" in row["framework"]:
        return None
    return {"model": row["model"], "precision": "bf16", "compile": "yes" if row["framework"].count("+ ") else "no",
            "checkpointing": "block" if "activation checkpointing" in row["framework"] else "none",
            "tokens/s": row["value"]}  # fmt: skip


def _answer(row: dict[str, str]) -> CLAIM | None:
    if row["metric"] != "time_of_1024_samples" or "offload" in row["parallelism"]:
        return None
    name, _, method = row["model"].partition(" ")
    samples = 1024 / float(row["value"])
    return {"model": name, "method": method.lower(), "precision": "bf16", "compile": "no", "checkpointing": "block",
            "parallel": "ddp" if "DDP" in row["parallelism"] else "fsdp", "samples/s": f"{samples:.5g}"}  # fmt: skip


READERS = {
    "LLM-Foundry": _foundry,
    "torchtitan": _titan,
    "torchao training": _titan,
    "fms-fsdp": _titan,
    "Megatron-Bridge": _megatron,
    "prime-rl": _prime,
    "Qwen README": _qwen,
    "torchtune optimization": _tune,
    "AnswerDotAI": _answer,
}
"""First words of a source -> the function that reads a row; None for a row that is no such claim."""


def _shipped(name: str) -> Iterator[CLAIM]:
    rows = load(name)
    rows = rows[rows["workload"].isin(["timing", "ddp"]) & rows["metric"].eq("time") & rows["phase"].eq("step")]
    rows = rows[rows["mode"].eq("train_step") & rows["median"].notna() & rows["world_size"].isin([1, 2])]
    for row in rows.iloc[:: EVERY.get(name, 1)].to_dict("records"):
        if row["adapter"] != "none" or (row["window"] == row["window"] and row["window"]):
            continue
        model = f"d{row['d_model']}-f{row['d_ff']}-l{row['num_layers']}-h{row['num_heads']}"
        for field, letter in (("num_kv_heads", "kv"), ("d_head", "dh")):
            model += f"-{letter}{int(row[field])}" if row[field] == row[field] and row[field] else ""
        model += (
            "-qknorm" * bool(row["qk_norm"])
            + "-gelu" * (row["feed_forward"] == "gelu")
            + "-tied" * bool(row["tied_head"])
        )
        tokens = row["batch_size"] * row["context_length"] * row["world_size"]
        yield {
            "name": name, "model": f"{model}-v{row['vocab_size']}", "gpus": f"{row['world_size']}x{row['device_name']}",
            "context": str(row["context_length"]), "batch": str(row["batch_size"] // row["accumulate"]),
            "accumulate": str(row["accumulate"]), "precision": row["precision"], "compile": str(row["compile"]),
            "attention": row["attention"], "checkpointing": row["checkpointing"], "offload": row["offload"],
            "parallel": row["ddp"] if row["world_size"] > 1 else "",
            "tokens/s": f"{tokens / row['median']:.6g}", "step_time": f"{row['median']:.6g}",
        }  # fmt: skip


def main() -> None:
    folder, output = sys.argv[1:]
    found = [*claims(Path(folder))]
    columns = [*dict.fromkeys(key for claim in found for key in claim)]
    with Path(output).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(f"{len(found)} claims in {output}")


if __name__ == "__main__":
    main()
