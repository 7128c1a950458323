"""Published steps on many GPUs, with their own models: LLM-Foundry's MPT, Llama by torchtitan, fms-fsdp and others."""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path

from lmsweep.orchestrator.sweep.sweep import single_trial
from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.analytic.rates.operators import Operator, Operators
from lmsweep.trials.prediction.step_operators import deepened, step_operators
from lmsweep.trials.spec.config import TrialConfig

MODELS = Path(__file__).parent / "published_models"
CHIPS = Path(__file__).with_name("published-chips.csv")
"""Steps published of several kinds of GPU, in the columns of published-fleet.csv. analysis/reference/SOURCES.md has the
sources."""
NAMES = {
    "GB200": "NVIDIA GB200",
    "GB300": "NVIDIA GB300",
    "A100": "NVIDIA A100-SXM4-80GB",
    "MI300X": "AMD Instinct MI300X OAM",
    "B200": "NVIDIA B200",
    "H200": "NVIDIA H200",
    "H100": "NVIDIA H100 80GB HBM3",
}
"""Word of a source -> the GPU, as its driver reports it."""
SOURCES = ("torchtitan", "torchao", "fms-fsdp", "ROCm/TransformerEngine", "ml-engineering", "Megatron-Bridge")
"""First words of the sources of Llama's steps."""
TUNED = ("ml-engineering", "Megatron-Bridge")
"""Sources whose attention is not PyTorch's. cuDNN's stands for it: FlashAttention 3 is as fast."""
SHARDED = "FSDP 64, TP 1, PP 1, CP 1"
"""What Megatron-Bridge calls the division of a model that `fully_shard` makes, too."""
RECOMPUTING = ("torchtitan", "torchao")
"""Sources whose selective checkpointing computes every second product of a block again, in float8 each (torchtitan,
activation_checkpoint.py)."""
VOCABULARY = 50368
"""Of MPT."""
FEW, MORE = 2, 3
"""Layers of the runs from which deeper ones are extended."""
UPDATE_BYTES = 28
"""Of a float32 weight with AdamW: read weight, gradient and two moments, write all but the gradient."""
_SHAPE = ("d_model", "d_ff", "num_layers", "num_heads", "num_kv_heads", "vocab_size")
LLAMAS: dict[str, dict[str, int]] = {
    name: dict(zip(_SHAPE, shape, strict=True))
    for name, shape in {
        "Llama 3.1 8B": (4096, 14336, 32, 32, 8, 128256),
        "Llama 3.1 70B, 4 layers": (8192, 28672, 4, 64, 8, 128256),
        "LLAMA3_70B": (8192, 28672, 80, 64, 8, 128256),
        "Llama2-7b": (4096, 11008, 32, 32, 32, 32000),
        "Llama2-13b": (5120, 13824, 40, 40, 40, 32000),
        "Llama2-34b": (8192, 22016, 48, 64, 8, 32000),
        "Llama2-70b": (8192, 28672, 80, 64, 8, 32000),
    }.items()
}
CONTEXT_OF_FMS = 4096


@dataclass(frozen=True, kw_only=True)
class FleetCell:
    source: str
    what: str
    full_name: str
    """Of the GPU, as its driver reports it."""
    ranks: int
    seconds: float
    """Published, of a step."""
    block: int
    """Weights of a block, and of what is outside of the blocks."""
    outside: int
    config: TrialConfig
    """Of the model with all its layers; batch of all micro-batches."""
    is_mpt: bool
    is_limited: bool = False
    """Whether the source limited the power of its GPUs, to what it does not state."""

    @property
    def tokens(self) -> int:
        return self.config.batch_size * self.config.context_length


def fleet_cells(path: str) -> Iterator[FleetCell]:
    """Yield the cells of published-fleet.csv that PyTorch's own parallelism can express."""
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            is_other = "Megatron" in row["source"] and SHARDED not in row["parallelism"]
            if is_other or "throughput" not in row["metric"]:
                continue
            yield _mpt(row) if row["source"].startswith("LLM-Foundry") else _llama(row)


def _mpt(row: dict[str, str]) -> FleetCell:
    micro, ranks, accumulate = int(row["batch"]), int(row["n_gpus"]), int(row["parallelism"].rsplit(" ", 1)[1])
    width, layers, context = int(row["d_model"]), int(row["n_layer"]), int(row["seq_len"])
    precision = "fp8_tensorwise" if "fp8" in row["precision"] else "bf16_pure"
    config = TrialConfig(
        model="mpt",
        model_code="mpt.py:build",
        model_args=json.dumps({"heads": int(row["n_head"]), "layers": layers, "width": width}, separators=(",", ":")),
        vocab_size=VOCABULARY,
        d_model=0,
        context_length=context,
        batch_size=micro * accumulate,
        accumulate=accumulate,
        precision=precision,
        attention="sdpa_flash",
        loss="cross_entropy",
        checkpointing="block" if "checkpointing True" in row["parallelism"] else "none",
        blocks="blocks",
        device="cuda",
        world_size=ranks,
        ddp="fsdp",
    )
    return FleetCell(
        source="LLM-Foundry",
        what=f"{row['model']} {context} x {micro} x {accumulate} {row['precision']}",
        full_name="NVIDIA H100 80GB HBM3" if "h100" in row["hardware"] else "NVIDIA A100-SXM4-80GB",
        ranks=ranks,
        seconds=micro * accumulate * context / float(row["value"]),
        block=12 * width**2,
        outside=(VOCABULARY + context) * width,
        config=config,
        is_mpt=True,
    )


def _llama(row: dict[str, str]) -> FleetCell:
    ranks, micro = int(row["n_gpus"]), int(row["batch"])
    context = int(row["seq_len"] or CONTEXT_OF_FMS)
    source = next(name for name in SOURCES if row["source"].startswith(name))
    is_fused = "compile" in row["framework"] or "Megatron" in source
    asked = {
        "workloads": "timing",
        **LLAMAS[row["model"]],
        "context_length": context,
        "batch_size": micro,
        "precision": "fp8_tensorwise" if "fp8" in row["precision"].lower() else "bf16_pure",
        "compile": "block" if is_fused else "none",
        "attention": "sdpa_cudnn" if source in TUNED else "sdpa_flash",
        "loss": "cross_entropy",
        "checkpointing": "selective" if "selective" in row["parallelism"] else "none",
        "device": "cuda",
    }
    config = single_trial([f"{name}={value}" for name, value in asked.items()]).config
    whole = parameter_count(**config.size.terms, vocab_size=config.vocab_size)
    outside = 2 * config.vocab_size * config.d_model + config.d_model
    return FleetCell(
        source=source,
        what=f"{row['model']} {row['framework']}",
        full_name=next(name for word, name in NAMES.items() if word in row["hardware"]),
        ranks=ranks,
        seconds=micro * context / float(row["value"]),
        block=(whole - outside) // (config.num_layers or 1),
        outside=outside,
        config=replace(config, world_size=ranks, ddp="zero1" if "DeepSpeed" in row["framework"] else "fsdp"),
        is_mpt=False,
        is_limited="power limited" in row["notes"],
    )


def rank_operators(cell: FleetCell) -> Operators:
    """Return the operators of a rank: those of one process, and what `fully_shard` or ZeRO-2 sends and copies."""
    layers = _layers(cell)
    operators = deepened(_few(cell, FEW), _few(cell, MORE), layers - FEW)
    assert operators is not None, "all layers are alike"
    times = cell.config.accumulate
    updated = Operator(
        name="_fused_adamw_",
        shapes=(((cell.block * layers + cell.outside) // cell.ranks,),),
        dtype="float32",
        bytes=UPDATE_BYTES * (cell.block * layers + cell.outside) // cell.ranks,
        flops=0,
        phase="optimizer",
        module="optimizer",
    )
    computed = [replace(one, count=one.count * times) for one in operators if one.phase != "optimizer"]
    again = products_again(computed) if cell.source in RECOMPUTING else ()
    return (*computed, *again, updated, *_sent(cell, layers))


def products_again(computed: Sequence[Operator]) -> Iterator[Operator]:
    """Yield the products of the blocks' forward pass that RECOMPUTING sources compute again."""
    of_blocks = [one for one in computed if one.phase == "forward" and one.count > 1]
    products = [one for one in of_blocks if one.name == "mm"]
    for one in (*products[1::2], *(one for one in of_blocks if one.name == "_scaled_mm")):
        yield replace(one, phase="backward", is_again=True)


def _sent(cell: FleetCell, layers: int) -> Iterator[Operator]:
    def message(name: str, weights: int, count: int, phase: str, module: str) -> Iterator[Operator]:
        sent = Operator(name=name, shapes=((weights,),), dtype="bfloat16", bytes=2 * weights, flops=0, phase=phase,
                        module=module, stream="communication", ranks=cell.ranks, count=count)  # type: ignore[arg-type] # fmt: skip
        yield sent
        yield replace(sent, name="split_with_sizes_copy", bytes=4 * weights, stream="compute", ranks=1)

    times = cell.config.accumulate
    if cell.config.fully_shards:
        for phase in ("forward", "backward"):
            yield from message("all_gather", cell.block, layers * times, phase, "blocks.*")
        yield from message("all_gather", cell.outside, times, "forward", "")
    else:
        yield from message("all_gather", cell.block * layers + cell.outside, 1, "optimizer", "")
    yield from message("reduce_scatter", cell.block, layers, "backward", "blocks.*")
    yield from message("reduce_scatter", cell.outside, 1, "backward", "")


def _layers(cell: FleetCell) -> int:
    return int(json.loads(cell.config.model_args or "{}").get("layers") or cell.config.num_layers or 0)


def _few(cell: FleetCell, layers: int) -> Operators:
    config = replace(cell.config, world_size=1, ddp="none", accumulate=1, batch_size=cell.config.micro_batch_size)
    if cell.is_mpt:
        args = json.loads(config.model_args or "{}") | {"layers": layers}
        config = replace(config, model_args=json.dumps(args, separators=(",", ":"), sort_keys=True))
    else:
        config = replace(config, num_layers=layers)
    return _operators(config)


@cache
def _operators(config: TrialConfig) -> Operators:
    if config.precision == "fp8_tensorwise":  # TransformerEngine casts in one kernel, as compiled code does
        return tuple(_in_float8(step_operators(replace(config, precision="bf16_pure"))))
    return step_operators(config)


def _in_float8(operators: Operators) -> Iterator[Operator]:
    """Yield the operators with the products of layers in float8: a kernel reads both operands once to round them."""
    for one in operators:
        if one.name != "mm" or ".*" not in one.module:
            yield one
            continue
        elements = sum(prod(shape) for shape in one.shapes)
        yield replace(one, name="fused", flops=0, shapes=one.shapes[:1], bytes=3 * elements, layout="")
        yield replace(one, name="_scaled_mm", dtype="float8_e4m3fn", bytes=one.bytes - elements, layout="fast")


def size_of(name: str) -> int:
    """Return the millions of parameters that a name such as MPT-1b states."""
    size = re.search(r"(\d+)(m|b)", name.lower())
    return int(size[1]) * (1000 if size[2] == "b" else 1) if size else 0
