"""Which combinations no machine runs, and which a device cannot run: known before anything is built or reserved.

What only PyTorch or the user's code knows is left to the trial.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from lmsweep.trials.spec.config import CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.attentions import ATTENTIONS
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from lmsweep.trials.spec.ways.losses import HIDDEN_LOSSES, LOSSES
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS, SHARDED
from lmsweep.trials.spec.ways.precisions import PRECISIONS, NumberFormats
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS, NARROW_PRECISIONS
from lmsweep.trials.spec.workloads import Workload, workload_named, workloads

CHUNKED_LOSS = "torch.nn.functional.linear_cross_entropy"
FLOAT8_MULTIPLE = 16
"""cuBLAS's float8 products need both inner and outer dimensions to be divisible by this."""

WITH_WINDOW = tuple(name for name, one in ATTENTIONS.items() if one.masked_by != "mask")
"""Attention with a sliding window. PyTorch's fused kernels would need a mask of all scores, which saves nothing."""


def _of_one_field(c: TrialConfig, w: Workload) -> Iterator[str]:
    readers = {"ddp": ("reshard", "gather", "shards"), "collectives": ("collective", "message_bytes")}
    for name, fields in readers.items():
        for field in fields:
            if w.name != name and _is_changed(c, field):
                yield f"{field} {getattr(c, field)} has no effect in the workload {w.name}; it is for {name}"
    if c.adapter != "none" and (w.needs != "model" or c.step):
        yield f"adapter {c.adapter} has no effect {f'with step {c.step}' if c.step else f'in the workload {w.name}'}"
    for field in ("compile", "compile_mode", "dynamic_shapes", "capture", "model_code", "blocks"):
        if c.step and w.takes_own_step and _is_changed(c, field):
            yield f"{field} has no effect with step {c.step}, which brings all of its own code"


def _of_workload(c: TrialConfig, w: Workload) -> Iterator[str]:
    if w.has_ranks and c.device_type not in ("cpu", "cuda"):
        yield (
            f"ranks on {c.device_type} are not measured, because collectives are found by the names that gloo and "
            f"nccl give them; {w.name} runs on cpu and cuda"
        )
    if not w.has_ranks and (c.world_size > 1 or c.ddp != "none"):
        yield f"{w.name} runs in one process; world_size and ddp are for {_names(lambda one: one.has_ranks)}"
    if c.capture != "none" and not w.captures:
        yield f"{w.name} measures no captured step; capture is for {_names(lambda one: one.captures)}"
    if c.accumulate > 1 and not w.accumulates:
        counting = _names(lambda one: one.accumulates)
        yield f"{w.name} looks into a step with one batch; accumulate is for {counting}"
    if c.step and not w.takes_own_step:
        timing = _names(lambda one: one.takes_own_step)
        yield f"{w.name} looks into the model, and of the step {c.step} only its phases are known; {timing} measure it"
    if c.memory_budget is not None and (w.has_ranks or w.holds != "model"):
        budgeted = _names(lambda one: one.holds == "model" and not one.has_ranks)
        yield f"{w.name} does not keep a step within memory_budget; {budgeted} do"


def _of_ddp(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.ddp == "none":
        yield "ddp: none synchronizes nothing; choose naive, flat, bucketed, ..."
    if c.precision in FLOAT8_PRECISIONS:
        yield f"precision {c.precision} is measured in one process, not in ranks of ddp"
    if c.bucket_bytes is not None and c.ddp in DDP_VARIANTS and DDP_VARIANTS[c.ddp].call != "bucket":
        yield f"bucket_bytes has no effect with ddp {c.ddp}, which has no buckets"
    if c.mode not in ("forward_backward", "train_step"):
        yield f"mode {c.mode} computes no gradients; ddp needs forward_backward or train_step"
    yield from _of_sharding(c)
    yield from _of_tensor_parallel(c)
    if c.accumulate > 1 and (is_reference(c.ddp) or is_reference(c.optimizer)):
        yield "your own code offers no known way to hold back its communication; use accumulate: 1"
    if (c.fully_shards or c.tp > 1) and c.optimizer not in SHARDED:
        yield f"divided weights are measured with AdamW; with {c.optimizer} choose bucketed or another"
    if c.fully_shards and c.loss in HIDDEN_LOSSES:
        yield f"loss {c.loss} reads the weight of the head, which {c.ddp} has divided; use eager"
    if c.ddp == "zero1" and c.mode != "train_step":
        yield "ddp zero1 shards the optimizer's state; it needs mode train_step"
    if c.ddp == "zero1" and c.optimizer not in SHARDED:
        yield f"ddp zero1 shards AdamW's state, not that of {c.optimizer}"
    if c.ddp == "torch" and c.compilation.whole and (c.bucket_bytes or 2**20) < 2**20:
        yield "torch.compile splits the model at the boundaries of buckets; bucket_bytes must be 1 MiB or more"
    if c.records_cuda_graphs:
        yield f"compile_mode {c.compile_mode} keeps gradients in the memory pool of CUDA graphs"


def _of_sharding(c: TrialConfig) -> Iterator[str]:
    ranks, shards = c.world_size // c.tp, c.shard_ranks
    if c.gather == "bf16" and c.precision != "bf16" and (c.fully_shards or is_reference(c.ddp)):
        why = "computes in it" if PRECISIONS[c.precision].operand == "bfloat16" else "computes in another"
        yield f"gather bf16 is the type in which precision bf16 computes; precision {c.precision} {why}"
    for field in ("reshard", "shards", "gather"):
        if not c.fully_shards and _is_changed(c, field) and not (field == "gather" and is_reference(c.ddp)):
            yield f"{field} has no effect with ddp {c.ddp}, which gathers no weights"
    if c.ddp == "zero2" and c.reshard != "true":
        yield "reshard has no effect with ddp zero2, which is fsdp with reshard: false"
    if c.ddp == "hsdp" and c.shards is None and c.nodes == 1:
        yield "hsdp shards within a node and replicates between nodes; on one node give shards"
    if c.ddp == "hsdp" and c.shards is None and c.ranks_per_node % c.tp:
        yield f"tp {c.tp} does not divide the {c.ranks_per_node} ranks of a node"
    if c.ddp == "hsdp" and (ranks % shards or shards in (1, ranks)):
        yield (
            f"hsdp over groups of {shards} of {ranks} ranks: shards must divide them, into more than one group of "
            "more than one; use fsdp for one group, and a variant without shards for groups of one"
        )
    if c.fully_shards and c.ddp != "hsdp" and c.shards is not None:
        yield f"shards has no effect with ddp {c.ddp}, which shards over all ranks; use hsdp"
    if c.fully_shards and c.reshard.isdecimal() and (shards % int(c.reshard) or int(c.reshard) >= shards):
        yield (
            f"reshard {c.reshard}: weights that {shards} ranks share can be resharded over a smaller number of "
            "ranks that divides theirs"
        )
    if c.fully_shards and c.reshard.isdecimal() and c.tp > 1:
        yield f"PyTorch does not reshard layers that tp divides over {c.reshard} ranks"


def _of_tensor_parallel(c: TrialConfig) -> Iterator[str]:
    if c.tp == 1:
        return
    if c.ddp != "naive" and not c.fully_shards:
        yield f"tp is measured with ddp naive, zero2, fsdp and hsdp, not with {c.ddp}"
    if c.model_code is not None or c.num_experts is not None or c.qk_norm:
        yield "tp divides lmsweep's own model, without experts and without norms of queries and keys"
    if c.compiles:
        yield "tp is measured eagerly; use compile: none"
    for name, count in (("heads of keys", c.num_kv_heads or c.num_heads or 1), ("d_ff", c.d_ff or 1)):
        if count % c.tp:
            yield f"tp {c.tp} does not divide {name} {count}"


def _of_collectives(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.world_size == 1:
        yield "one rank sends nothing; collectives needs world_size: 2 or more"
    if c.ddp != "none" or c.tp > 1:
        yield "collectives has no model; ddp and tp are for the workload ddp"
    if c.precision in FLOAT8_PRECISIONS:
        yield "collectives send no float8 numbers; its messages are of fp32, bf16 or fp16"
    if c.message_bytes < c.world_size * (2 if c.precision in NARROW_PRECISIONS else 4):
        yield f"message_bytes {c.message_bytes} has no element for each of {c.world_size} ranks"


def _of_attention(c: TrialConfig, _: Workload) -> Iterator[str]:
    device, head = c.device_type, c.head_width
    if c.window is not None and (c.model_code is not None or c.attention not in WITH_WINDOW):
        yield f"{c.model_code or f'attention {c.attention}'} takes no window; these do: {', '.join(WITH_WINDOW)}"
    if c.is_hugging_face and is_reference(c.attention):
        yield f"{c.model_code} has its own attention layers; attention is a reference, {c.attention}"
    if c.document_length is not None and (c.model_code is not None or is_reference(c.attention)):
        yield (
            f"document_length is for lmsweep's own model and attention; {c.model_code or c.attention} does not learn "
            "where documents begin"
        )
    if c.attention == "flex" and device == "mps":
        yield "flex needs device: cuda, or device: cpu without gradients; not every version of PyTorch has it on MPS"
    if c.attention == "flex" and device == "cpu" and c.mode != "forward":
        yield "flex has no backward on a CPU; use mode: forward or device: cuda"
    if c.attention == "flex" and device == "cuda" and head < 16 and c.model_code is None:
        yield f"flex on CUDA needs a head dimension of at least 16, not {head}"
    if c.attention == "varlen":
        yield from _of_varlen(c)
    known = ATTENTIONS.get(c.attention)
    if known and known.kernel and known.devices and device not in known.devices:
        others = "".join(f" or device: {other}" for other in known.devices if other != "cuda")
        yield f"{c.attention} needs an NVIDIA GPU (device: cuda){others}: PyTorch has no such kernel for {device}"
    if known and known.kernel and known.is_16_bit and device == "cuda" and c.precision not in NARROW_PRECISIONS:
        yield f"{c.attention} takes the dtypes float16 and bfloat16 on CUDA, not float32; use precision: bf16"
    if c.dynamic_shapes and c.compile == "none":
        yield "dynamic_shapes has no effect with compile: none"
    if c.dynamic_shapes and c.records_cuda_graphs:
        yield f"compile_mode {c.compile_mode} records CUDA graphs, which have one shape each"
    if c.compile_mode != "default" and c.compile == "none":
        yield f"compile_mode {c.compile_mode} has no effect with compile: none"
    if c.compile_mode == "reduce-overhead" and device != "cuda":
        yield f"compile_mode reduce-overhead uses CUDA graphs, which device {device} does not have"
    if c.compile_mode != "default" and device == "mps":
        yield f"compile_mode {c.compile_mode} has no kernels to choose from on device mps"


def _of_varlen(c: TrialConfig) -> Iterator[str]:
    if c.model_code is not None:
        yield f"varlen is for lmsweep's own model, not for {c.model_code}"
    if c.device_type != "cuda":
        yield f"varlen needs an NVIDIA GPU (device: cuda): PyTorch has no such kernel for {c.device}"
    if c.precision not in NARROW_PRECISIONS:
        yield f"varlen is FlashAttention, which needs 16 bits (precision: bf16), not {c.precision}"
    if c.head_width % 8 or c.head_width > 256:
        yield f"varlen needs a head dimension that 8 divides, up to 256, not {c.head_width}"


def _of_attention_alone(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.compilation.each_block:
        yield "attention alone has no block to compile; compile: model compiles the attention"
    if c.precision in FLOAT8_PRECISIONS:
        yield "attention alone has no linear layers, which are what float8 is for; use bf16"
    if PRECISIONS[c.precision].weights != "float32":
        yield "attention alone has no weights; with precision: bf16 its tensors are bfloat16"
    if c.cold_l2 and c.device_type != "cuda":
        yield "cold_l2 needs device: cuda; the caches of other devices cannot be emptied"


def _of_step(c: TrialConfig, w: Workload) -> Iterator[str]:
    if c.checkpointing != "none" and c.mode == "forward":
        yield "checkpointing has no effect in mode forward, which saves nothing for backward"
    if c.recomputation.keeps_products and c.compilation.each_block:
        yield (
            f"checkpointing {c.checkpointing} keeps results of operators, which a compiled block does not have; use "
            "compile: none or model"
        )
    if c.model_code is not None and (c.recomputation.keeps_products or not c.recomputation.grows_with_layers):
        yield f"checkpointing {c.checkpointing} is for lmsweep's own model; with your own model use block"
    if c.precision in FLOAT8_PRECISIONS and c.model_code is None:
        yield from _of_float8(c)
    if c.memory_budget is not None:
        yield from _of_memory_budget(c)
    if c.offload != "none":
        yield from _of_offload(c, w)


def _of_adapter(c: TrialConfig, w: Workload) -> Iterator[str]:
    if c.adapter == "none":
        if c.adapter_args:
            yield f"adapter_args {c.adapter_args} have no effect with adapter none"
        return
    if ADAPTERS[c.adapter].stored_bits and c.device_type != "cuda":
        yield f"adapter {c.adapter} stores weights in 4 bits, whose kernels need device: cuda, not {c.device_type}"
    if c.tp > 1:
        yield f"adapter {c.adapter} is not measured with tp, which divides the layers that it is beside"
    if ADAPTERS[c.adapter].stored_bits and w.has_ranks:
        yield f"adapter {c.adapter} is not measured on several ranks, whose ways to share weights know no 4 bits"
    if ADAPTERS[c.adapter].stored_bits and c.compile != "none":
        yield f"adapter {c.adapter} is not measured with compile: the kernels for 4 bits are not torch.compile's"
    if c.precision in FLOAT8_PRECISIONS:
        yield f"adapter {c.adapter} is not measured with precision {c.precision}, which replaces the same layers"
    if c.loss in HIDDEN_LOSSES:
        yield f"loss {c.loss} computes the gradient of the head, which adapter {c.adapter} freezes"
    if c.mode == "forward":
        yield f"adapter {c.adapter} has no effect in mode forward, which trains nothing"
    if w.name == "precision":
        yield f"adapter {c.adapter}: the workload precision compares gradients of all weights, and most are frozen"
    if c.optimizer in OPTIMIZERS and OPTIMIZERS[c.optimizer].only_matrices:
        yield f"optimizer {c.optimizer} is for the model's own matrices, which adapter {c.adapter} freezes"


def _of_float8(c: TrialConfig) -> Iterator[str]:
    if c.num_experts:
        yield "experts are batched products, which torchao's float8 linear layers do not cover"
    sizes = {
        "d_model": c.d_model,
        "d_ff": c.d_ff or 0,
        "num_heads times d_head": (c.num_heads or 1) * c.head_width,
        "num_kv_heads times d_head": (c.num_kv_heads or c.num_heads or 1) * c.head_width,
        "the number of tokens of a micro-batch": c.micro_batch_size * c.context_length,
    }
    for name, size in sizes.items():
        if size % FLOAT8_MULTIPLE:
            yield f"float8 needs dimensions divisible by {FLOAT8_MULTIPLE}, and {name} is {size}"


def _of_offload(c: TrialConfig, w: Workload) -> Iterator[str]:
    if c.device_type != "cuda":
        yield f"offload {c.offload} moves to the host what device {c.device_type} has there; it needs device: cuda"
    if w.has_ranks:
        yield f"offload {c.offload} is measured in one process: weights that ranks gather look like activations"
    if c.capture != "none":
        yield f"offload {c.offload} waits for copies to the host, which CUDA graphs cannot record"
    if c.offload == "activations" and c.mode == "forward":
        yield f"offload {c.offload} has no effect in mode forward, which saves nothing for backward"
    if c.offload == "activations" and c.compile != "none":
        yield f"offload {c.offload} is measured eagerly: what compiled code saves is its compiler's choice"
    if c.offload == "optimizer" and c.mode != "train_step":
        yield f"offload {c.offload} has no effect in mode {c.mode}, which updates no weights"
    if c.offload == "optimizer" and c.optimizer not in SHARDED:
        yield f"offload {c.offload} is for PyTorch's AdamW ({', '.join(SHARDED)}), not for {c.optimizer}"


def _of_memory_budget(c: TrialConfig) -> Iterator[str]:
    if not c.compilation.each_block:
        yield (
            f"memory_budget {c.memory_budget} is met by PyTorch's partitioner of compiled graphs, which takes too "
            f"long for the graph of a whole model; with compile: {c.compile} use checkpointing, or use compile: block"
        )
    if c.checkpointing != "none":
        yield f"memory_budget decides what is recomputed, and so does checkpointing: {c.checkpointing}"
    if c.mode == "forward":
        yield "memory_budget has no effect in mode forward, which saves nothing for backward"


def _of_capture(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.capture == "none":
        return
    if c.device_type != "cuda":
        yield f"capture: step records CUDA graphs, which device {c.device_type} does not have"
    if c.records_cuda_graphs:
        yield f"compile_mode {c.compile_mode} records CUDA graphs of its own; use capture without it"
    if c.accumulate > 1:
        yield "capture: step captures each phase once; with accumulate a phase runs once per micro-batch"
    optimizer = OPTIMIZERS.get(c.optimizer)
    if c.mode == "train_step" and not (optimizer and optimizer.capturable):
        yield f"capture: step needs a capturable optimizer, and {c.optimizer} is none; use AdamW"
    if c.precision == "fp16" and c.mode == "train_step" and not (optimizer and optimizer.is_fused):
        yield (
            f"with precision fp16 and optimizer {c.optimizer}, the host waits in each step for the result of the "
            "gradient scaler, which a CUDA graph cannot record; adamw_fused reads it on the device"
        )


def _of_loss(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.loss in HIDDEN_LOSSES and c.model_code is not None:
        yield f"loss {c.loss} takes hidden states and the head's weight, and {c.model_code} returns logits"
    if c.loss in LOSSES and LOSSES[c.loss].function and c.device_type != "cuda":
        yield f"loss {c.loss} is made of Triton kernels and needs device: cuda"


def _of_loss_alone(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.compile != "none":
        yield "the loss alone has no block to compile; loss: compiled compiles the loss"
    if c.precision in FLOAT8_PRECISIONS:
        yield "float8 is for the linear layers of blocks; the head is in bf16"


def _of_ceiling(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.precision == "fp8_rowwise_gw_hp":
        yield "the product of fp8_rowwise_gw_hp is that of fp8_rowwise, or bfloat16's for weights"
    if c.precision in FLOAT8_PRECISIONS and c.d_model % FLOAT8_MULTIPLE:
        yield f"float8 needs dimensions divisible by {FLOAT8_MULTIPLE}, and d_model is {c.d_model}"


def _is_changed(config: TrialConfig, field: str) -> bool:
    return bool(getattr(config, field) != CONFIG_FIELDS[field].default)


def _names(has: Callable[[Workload], object]) -> str:
    return ", ".join(name for name, workload in workloads().items() if has(workload))


def _any(config: TrialConfig, workload: Workload) -> bool:
    return True


def _builds_step(config: TrialConfig, workload: Workload) -> bool:
    return workload.needs == "model" and config.step is None


def _is(*names: str) -> Callable[[TrialConfig, Workload], bool]:
    return lambda _, workload: workload.name in names


def _builds_or_is(name: str) -> Callable[[TrialConfig, Workload], bool]:
    return lambda config, workload: _builds_step(config, workload) or workload.name == name


@dataclass(frozen=True)
class Rule:
    """What no machine runs, of some workloads."""

    applies: Callable[[TrialConfig, Workload], bool]
    """Whether the rule is about such a configuration and workload."""
    why: Callable[[TrialConfig, Workload], Iterator[str]]
    """Every reason why they are unsupported."""


RULES: tuple[Rule, ...] = (
    Rule(_any, _of_one_field),
    Rule(_any, _of_workload),
    Rule(_is("ddp"), _of_ddp),
    Rule(_is("collectives"), _of_collectives),
    Rule(_builds_or_is("attention"), _of_attention),
    Rule(_is("attention"), _of_attention_alone),
    Rule(_is("timing"), _of_capture),
    Rule(_builds_step, _of_step),
    Rule(_builds_step, _of_adapter),
    Rule(_builds_or_is("loss"), _of_loss),
    Rule(_is("loss"), _of_loss_alone),
    Rule(_is("ceiling"), _of_ceiling),
)
"""Every combination that a configuration alone rules out."""


def why_not(config: TrialConfig, workload: str) -> str | None:
    """Return the first reason why no machine runs this workload with this configuration; None if some may."""
    record = workload_named(workload)
    if workload == "precision":  # it computes gradients in every mode
        config = replace(config, mode="forward_backward")
    reasons = (reason for rule in RULES if rule.applies(config, record) for reason in rule.why(config, record))
    without_gpu = None if config.device_type == "cuda" else Capabilities(f"device: {config.device_type}")
    return (without_gpu and why_not_on(config, workload, without_gpu)) or next(reasons, None)


class Capabilities(NamedTuple):
    """What a device can compute."""

    name: str
    compute: tuple[int, int] = (0, 0)
    """CUDA's compute capability; (0, 0) of a device that is not NVIDIA's."""
    bfloat16: bool = True
    """Whether it multiplies in bfloat16."""
    missing: frozenset[str] = frozenset()
    """Those of OPTIONAL_MODULES that cannot be imported there."""

    @property
    def instead(self) -> str:
        """What it has instead of a capability: `; NVIDIA T4 has 7.5`, or `, not device: cpu`."""
        return f"; {self.name} has {self.compute[0]}.{self.compute[1]}" if any(self.compute) else f", not {self.name}"


class DeviceRule(NamedTuple):
    """Values of one field that some devices lack."""

    field: str
    values: tuple[str, ...]
    lacks: Callable[[Capabilities], bool]
    why: str
    """The reason, with {value}, and {name} and {instead} of the device."""


def _needs_tensor_cores(precision: str, formats: NumberFormats) -> DeviceRule:
    least = formats.compute_capability or (0, 0)
    cores = "float8 tensor cores" if formats.float8_recipe else "tensor cores"
    return DeviceRule(
        field="precision",
        values=(precision,),
        lacks=lambda device: device.compute < least,
        why="{value} needs the " + f"{cores} of an NVIDIA GPU of compute capability {least[0]}.{least[1]} or higher"
        "{instead}",
    )


def _needs_module(field: str, value: str, module: str, package: str) -> tuple[str, DeviceRule]:
    """package: what to say of it after "needs"."""
    why = f"{field} {{value}} needs {package}"
    return module, DeviceRule(field, (value,), lambda device: module in device.missing, why)


def _needs_package(field: str, value: str, path: str) -> tuple[str, DeviceRule]:
    package = path.partition(".")[0]
    return _needs_module(field, value, package, f"the package {package.replace('_', '-')}")


_PEFT = "the package peft; pip install 'lmsweep[adapters]'"
_BITS = "the package bitsandbytes; pip install 'lmsweep[qlora]'"
_MODULES = (
    *(_needs_package("loss", name, one.function) for name, one in LOSSES.items() if one.function),
    _needs_module("loss", "chunked", CHUNKED_LOSS, "PyTorch 2.13 or later"),
    *(_needs_module("adapter", name, "peft", _PEFT) for name in ADAPTERS),
    *(_needs_module("adapter", name, "bitsandbytes", _BITS) for name, one in ADAPTERS.items() if one.stored_bits),
    *(_needs_package("optimizer", name, one.factory) for name, one in OPTIMIZERS.items() if not one.is_of_torch),
    *(_needs_package("precision", name, "torchao") for name in FLOAT8_PRECISIONS),
)
OPTIONAL_MODULES = tuple(sorted({module for module, _ in _MODULES}))
"""What some values need and not every installation has."""

DEVICE_RULES: tuple[DeviceRule, ...] = (
    *(_needs_tensor_cores(name, formats) for name, formats in PRECISIONS.items() if formats.compute_capability),
    DeviceRule(
        field="precision",
        values=tuple(name for name, formats in PRECISIONS.items() if formats.operand == "bfloat16"),
        lacks=lambda device: not device.bfloat16,
        why="{name} has no bfloat16 arithmetic",
    ),
    DeviceRule(
        field="attention",
        values=tuple(name for name, one in ATTENTIONS.items() if one.is_16_bit),
        lacks=lambda device: (0, 0) < device.compute < (8, 0),  # AMD's GPUs have kernels of their own
        why="{value} needs compute capability 8.0 or higher{instead}",
    ),
    *(rule for _, rule in _MODULES),
)
"""Every value that a device, or what is installed beside it, rules out."""
_BY_VALUE = {
    (field, value): [rule for rule in DEVICE_RULES if rule.field == field and value in rule.values]
    for field, value in {(rule.field, value) for rule in DEVICE_RULES for value in rule.values}
}


def why_not_on(config: TrialConfig, workload: str, device: Capabilities) -> str | None:
    """Return why this device does not run this workload with this configuration; None if it may."""
    record = workload_named(workload)
    about = {
        "precision": True,
        "attention": _builds_or_is("attention")(config, record),
        "loss": _builds_or_is("loss")(config, record),
        "adapter": _builds_step(config, record),
        "optimizer": _builds_step(config, record) and config.mode == "train_step",
    }
    fields = [field for field, applies in about.items() if applies]
    reasons = (why_no_value(field, getattr(config, field), device) for field in fields)
    return next((reason for reason in reasons if reason), None)


def why_no_value(field: str, value: str, device: Capabilities) -> str | None:
    """Return why a device lacks a value of a field; None if it may have it."""
    rules = (rule for rule in _BY_VALUE.get((field, value), ()) if rule.lacks(device))
    return next((rule.why.format(value=value, name=device.name, instead=device.instead) for rule in rules), None)
