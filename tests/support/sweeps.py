"""What tests of sweep files share: the values of their rows, what an error says, and lists of possible values."""

from pathlib import Path
from typing import get_args

import pytest
import yaml

from lmsweep.orchestrator.sweep.sweep import Sweep
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError
from lmsweep.trials.spec.words import Precision
from lmsweep.trials.spec.workloads import workloads

PRECISIONS = f"(one of: {', '.join(get_args(Precision))})"
OR_OTHER = "or a mapping of its dimensions, or your own as package.module:name"
WORKLOADS = f"(one of: {', '.join(workloads())}), or your own as package.module:measure"
PARTS_OF_OTHERS = (
    "model_code",
    "model_args",
    "step_args",
    "attention_args",
    "optimizer_args",
    "ddp_args",
    "adapter_args",
)
FIELDS = f"(one of: {', '.join(name for name in CONFIG_FIELDS if name not in PARTS_OF_OTHERS)})"


OTHERS = yaml.safe_load("""{
    model: small, d_model: 64, d_ff: 32, num_layers: 3, num_heads: 2,
    num_kv_heads: 1, d_head: 6, qk_norm: true, feed_forward: gelu, num_experts: 4, active_experts: 2,
    tied_head: true, vocab_size: 11, context_length: 7,
    batch_size: 3, precision: tf32, compile: model, compile_mode: max-autotune, dynamic_shapes: true, capture: step,
    checkpointing: sqrt, offload: activations,
    memory_budget: 8000, attention: sdpa, causal: false, window: 5, lengths: "4",
    batching: packed, batch_tokens: 5, seed: 2, allocator: expandable_segments, optimizer: adamw_loop,
    adapter: lora, zero_grad: before_backward, world_size: 2, nodes: 2, ddp: flat, bucket_bytes: 1000, reshard: "2",
    shards: 2, gather: bf16, accumulate: 3, tp: 2, collective: broadcast, message_bytes: 77,
    software: torch==2.12.0, device: cuda:H200,
    mode: forward, warmup_steps: 0, measure_steps: 1, max_seconds: 0.5, batches: 7, cold_l2: true, profiler: nsys,
    timeout_seconds: 2.5, processes: 3
}""")
"""A value of each field that is not of own code, other than its default."""


def cases(name: str) -> dict[str, tuple[str, list[str]]]:
    """Title -> a sweep file in a text file of tests/sweep, and the lines below it, which begin with `>> ` there."""
    _, *parts = (Path(__file__).parents[1] / "sweep" / name).read_text("utf-8").split("## ")
    found = {}
    for part in parts:
        title, *lines = part.splitlines()
        text = "".join(f"{line}\n" for line in lines if line and not line.startswith(">> "))
        found[title] = text, [line.removeprefix(">> ") for line in lines if line.startswith(">> ")]
    return found


def values(sweep: Sweep, *names: str) -> list[tuple]:
    return [tuple(getattr(trial.config, name) for name in names) for trial in sweep.trials]


def error_of(load, *arguments, **overrides) -> str:
    with pytest.raises(RequestError) as caught:
        load(*arguments, **overrides)
    return str(caught.value)
