"""Compare predicted memory and time of fine-tuning with the figures that Qwen published for one A100 of 80 GB.

python benchmarks/finetuning_published.py [MODEL]
python benchmarks/finetuning_published.py reasons

Reads published-finetuning.csv, whose rows name their source. Predicts each cell on lmsweep's own transformer of the
same dimensions, with its micro-batch of one sequence, eight of them an iteration. Prints a line for each cell, with the
reason why it is not predicted or differs by more than APART, where one is known. The reasons are inferred from the
code that was run; `reasons` tests two of them: it predicts the memory with that one thing changed.
"""

import csv
import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from tabulate import tabulate
from torch import Tensor
from torch.nn import functional

from lmsweep.orchestrator.planning.step_estimate import in_precision
from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates.rate_set import rates_of
from lmsweep.trials.analytic.rates.step_time import step_time
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.capacity.device_room import any_batch_step
from lmsweep.trials.prediction.peak_memory import summary
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import Code

DATA = Path(__file__).with_name("published-finetuning.csv")
MODELS = {
    "Qwen-1.8B": {"d_model": 2048, "d_ff": 5504, "num_layers": 24, "num_heads": 16, "vocab_size": 151936},
    "Qwen-7B": {"d_model": 4096, "d_ff": 11008, "num_layers": 32, "num_heads": 32, "vocab_size": 151936},
    "Qwen-14B": {"d_model": 5120, "d_ff": 13696, "num_layers": 40, "num_heads": 40, "vocab_size": 152064},
    "Qwen-72B": {"d_model": 8192, "d_ff": 24576, "num_layers": 80, "num_heads": 64, "vocab_size": 152064},
}
"""Dimensions in their config.json; its intermediate_size counts both halves of the gated layer."""
METHODS = {"full": "none", "LoRA": "lora", "Q-LoRA": "qlora"}
ACCUMULATED = 8
ADAPTED = json.dumps({"rank": 64, "alpha": 16})
"""As the defaults of Qwen's finetune.py, which adapts all linear layers of a block but the last; here that one, too."""
APART = 0.1
UNPREDICTED = {
    "LoRA (emb)": "it trains embeddings and head beside adapters, for which lmsweep has no field",
    "LoRA + ZeRO-3": "DeepSpeed's ZeRO-3 is not what fully_shard does",
}
LOW, HIGH = True, False
REASONS = {  # by finetune.py, its scripts and DeepSpeed's configuration in Qwen's repository
    (
        "LoRA",
        "memory",
        LOW,
    ): "adapters in float32, autocast, the allocator's cache (all tested); CUDA's context",
    ("full", "memory", LOW): "DeepSpeed's ZeRO-2: 22 bytes a weight at the update, buckets of 0.8 GB; here 8 bytes",
    ("Q-LoRA", "memory", LOW): "ZeRO-2's buckets of 0.8 GB, float32 adapters; GPTQ unpacks a weight by several copies",
    ("Q-LoRA", "memory", HIGH): "DeepSpeed's fp16 computes the loss in 16 bits, here in float32 (tested)",
    ("LoRA", "time", LOW): "the host: as published, twice the tokens take hardly longer",
    ("full", "time", LOW): "the host: as published, twice the tokens take hardly longer",
    ("Q-LoRA", "time", LOW): "GPTQ unpacks each weight by operators of PyTorch, whatever the tokens; and the host",
}


def config_of(model: str, method: str, context: int) -> TrialConfig:
    """One micro-batch: its gradients are added to those of the others."""
    return TrialConfig(
        **MODELS[model],
        context_length=context,
        batch_size=1,
        adapter=METHODS[method],
        adapter_args=None if method == "full" else ADAPTED,
        checkpointing="block",
        device="cuda",
        precision="bf16_pure",
        attention="sdpa",
        loss="cross_entropy",
        mode="train_step",
    )


def predicted(config: TrialConfig) -> tuple[int, float]:
    """Peak bytes, and seconds of an iteration."""
    device = find_device("NVIDIA A100-SXM4-80GB")
    assert device is not None, "it has a datasheet"
    step = any_batch_step(config)
    peak = summary(step.trace.at(1), config).on(device.name).peak
    found = in_precision(step.operators(1), config)
    all_batches = tuple(
        one if one.phase == "optimizer" else replace(one, count=ACCUMULATED * one.count) for one in found
    )
    return peak, step_time(all_batches, rates_of(device)).seconds


def loss_in_16_bits(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss in the type of the logits, as DeepSpeed's fp16 computes it."""
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def reasons() -> None:
    """Print the peak memory as predicted above, and with one thing changed."""
    use_code(Code(folder=str(Path(__file__).parent)))
    device = find_device("NVIDIA A100-SXM4-80GB")
    assert device is not None, "it has a datasheet"
    lines = []
    for model, method, contexts, changed in (
        ("Qwen-1.8B", "Q-LoRA", (1024, 2048, 8192), {"loss": "finetuning_published:loss_in_16_bits"}),
        ("Qwen-1.8B", "LoRA", (512, 1024, 8192), {"precision": "bf16"}),
        ("Qwen-7B", "LoRA", (1024, 2048, 8192), {"precision": "bf16"}),
    ):
        for context in contexts:
            plain = config_of(model, method, context)
            found = [
                summary(any_batch_step(one).trace.at(1), one).on(device.name)
                for one in (plain, replace(plain, **changed))  # type: ignore[arg-type]
            ]
            gigabytes = [f"{size / 1e9:.3g}" for size in (found[0].peak, found[1].peak, found[1].reserved)]
            lines.append([model, method, context, *gigabytes, *changed.values()])
    headers = ["model", "method", "tokens", "GB", "GB changed", "and reserved", "changed"]
    print(tabulate(lines, headers=headers, disable_numparse=True, tablefmt="github"))


def main() -> None:
    cells: dict[tuple[str, str, int], dict[str, float]] = defaultdict(dict)
    with DATA.open() as file:
        for row in csv.DictReader(file):
            model, _, method = row["model"].partition(" ")
            if not sys.argv[1:] or model == sys.argv[1]:
                cells[model, method, int(row["seq_len"])][row["metric"]] = float(row["value"])
    lines = []
    for (model, method, context), published in cells.items():
        line = [model, method, context]
        if method in UNPREDICTED:
            lines.append([*line, published["peak_memory"], "-", "-", published["iteration_time"], "-", "-"])
            lines[-1].append(UNPREDICTED[method])
            continue
        peak, seconds = predicted(config_of(model, method, context))
        why = []
        for name, ours, theirs in (
            ("memory", peak / 1e9, published["peak_memory"]),
            ("time", seconds, published["iteration_time"]),
        ):
            off = ours / theirs - 1
            line += [theirs, f"{ours:.3g}", f"{off:+.0%}"]
            if abs(off) > APART:
                why.append(f"{name}: {REASONS.get((method, name, off < 0), 'not known')}")
        lines.append([*line, "; ".join(why)])
        print(*lines[-1], flush=True, file=sys.stderr)
    headers = ["model", "method", "tokens", "GB", "ours", "off", "s", "ours", "off", "reason"]
    print(tabulate(lines, headers=headers, disable_numparse=True, tablefmt="github"))


if __name__ == "__main__":
    reasons() if sys.argv[1:] == ["reasons"] else main()
