"""Which combinations of the parts of a step no machine runs."""

from collections.abc import Iterator

from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.attentions import ATTENTIONS
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS
from lmsweep.trials.spec.ways.losses import HIDDEN_LOSSES, LOSSES
from lmsweep.trials.spec.ways.offloads import OFFLOADS
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS, SHARDED
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS, NARROW_PRECISIONS
from lmsweep.trials.spec.workloads import Workload

FLOAT8_MULTIPLE = 16
"""cuBLAS's float8 products need both inner and outer dimensions to be divisible by this."""

WITH_WINDOW = tuple(name for name, one in ATTENTIONS.items() if one.masked_by != "mask")
"""Attention with a sliding window. PyTorch's fused kernels would need a mask of all scores, which saves nothing."""


def of_attention(c: TrialConfig, _: Workload) -> Iterator[str]:
    device, head = c.device_type, c.head_width
    if c.window is not None and (c.model_code is not None or c.attention not in WITH_WINDOW):
        yield f"{c.model_code or f'attention {c.attention}'} takes no window; these do: {', '.join(WITH_WINDOW)}"
    if c.is_hugging_face and is_reference(c.attention):
        yield f"{c.model_code} has its own attention layers; attention is a reference, {c.attention}"
    if c.batching == "packed" and (c.model_code is not None or is_reference(c.attention)):
        yield (
            f"batching: packed is for lmsweep's own model and attention; {c.model_code or c.attention} does not learn "
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


def _of_varlen(c: TrialConfig) -> Iterator[str]:
    if c.model_code is not None:
        yield f"varlen is for lmsweep's own model, not for {c.model_code}"
    if c.device_type != "cuda":
        yield f"varlen needs an NVIDIA GPU (device: cuda): PyTorch has no such kernel for {c.device}"
    if c.precision not in NARROW_PRECISIONS:
        yield f"varlen is FlashAttention, which needs 16 bits (precision: bf16), not {c.precision}"
    if c.head_width % 8 or c.head_width > 256:
        yield f"varlen needs a head dimension that 8 divides, up to 256, not {c.head_width}"


def of_compilation(c: TrialConfig, _: Workload) -> Iterator[str]:
    device = c.device_type
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


def of_step(c: TrialConfig, w: Workload) -> Iterator[str]:
    if c.checkpointing != "none" and c.mode == "forward":
        yield "checkpointing has no effect in mode forward, which saves nothing for backward"
    if c.model_code is not None and not c.recomputation.grows_with_layers:  # it groups blocks
        yield f"checkpointing {c.checkpointing} is for lmsweep's own model; with your own model use block or selective"
    if c.precision in FLOAT8_PRECISIONS and c.model_code is None:
        yield from _of_float8(c)
    if PRECISIONS[c.precision].has_copies and c.mode == "train_step":
        yield from _of_copies(c)
    if c.memory_budget is not None:
        yield from _of_memory_budget(c)
    if c.offload != "none":
        yield from _of_offload(c, w)


def of_adapter(c: TrialConfig, w: Workload) -> Iterator[str]:
    if c.adapter == "none":
        if c.adapter_args:
            yield f"adapter_args {c.adapter_args} have no effect with adapter none"
        return
    if ADAPTERS[c.adapter].stored_bits and c.device_type != "cuda":
        yield f"adapter {c.adapter} stores weights in 4 bits, whose kernels need device: cuda, not {c.device_type}"
    if c.tp > 1 and ADAPTERS[c.adapter].whole:
        yield f"adapter {c.adapter} is not measured with tp, which divides its {ADAPTERS[c.adapter].whole}; use lora"
    if c.tp > 1 and c.adapter_arguments.dropout:
        yield "adapter_args.dropout would with tp draw other numbers for parts of a layer than for all of it; use 0"
    if ADAPTERS[c.adapter].stored_bits and c.compile != "none":
        yield f"adapter {c.adapter} is not measured with compile: the kernels for 4 bits are not torch.compile's"
    if ADAPTERS[c.adapter].stored_bits and c.gather == "bf16":
        yield f"gather bf16 would convert the weights that adapter {c.adapter} stores in 4 bits"
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
    way = OFFLOADS[c.offload]
    if c.device_type != "cuda":
        yield f"offload {c.offload} moves to the host what device {c.device_type} has there; it needs device: cuda"
    if w.has_ranks and way.saved == "all":
        yield (
            f"offload {c.offload} is measured in one process: weights that ranks gather look like activations; use "
            "offload: block_inputs with checkpointing: block"
        )
    if w.has_ranks and way.updates and not c.fully_shards:
        yield f"offload {c.offload} with ddp {c.ddp} would update all weights on the host once per rank; use ddp fsdp"
    if c.capture != "none":
        yield f"offload {c.offload} waits for copies to the host, which CUDA graphs cannot record"
    if way.saved and c.mode == "forward":
        yield f"offload {c.offload} has no effect in mode forward, which saves nothing for backward"
    if way.saved == "all" and c.compile != "none":
        yield f"offload {c.offload} is measured eagerly: what compiled code saves is its compiler's choice"
    if way.saved == "block_inputs" and c.checkpointing == "none":
        yield f"offload {c.offload} moves what checkpointing keeps of blocks, their inputs; use it with checkpointing"
    of_users_block = c.compilation.each_block and c.model_code is not None
    checkpoint_is_compiled = c.compilation.whole or c.compiles_checkpoints or of_users_block
    if way.saved == "block_inputs" and checkpoint_is_compiled:
        yield (
            f"offload {c.offload} needs checkpoints around compiled blocks; here they are part of what is compiled, so "
            "use compile: none" + ("" if c.model_code else ", or compile: block with checkpointing: block")
        )
    if way.updates and c.mode != "train_step":
        yield f"offload {c.offload} has no effect in mode {c.mode}, which updates no weights"
    if way.updates and c.optimizer not in SHARDED:
        yield f"offload {c.offload} is for PyTorch's AdamW ({', '.join(SHARDED)}), not for {c.optimizer}"


def _of_copies(c: TrialConfig) -> Iterator[str]:
    if c.optimizer not in OPTIMIZERS or not OPTIMIZERS[c.optimizer].is_fused:
        yield f"precision {c.precision} updates float32 copies of the weights by adamw_fused, not by {c.optimizer}"
    if OFFLOADS[c.offload].updates:
        yield f"precision {c.precision} and offload {c.offload} both copy the weights; use precision: fp16"
    if c.tp > 1 or (c.ddp in DDP_VARIANTS and DDP_VARIANTS[c.ddp].shared):
        yield (
            f"precision {c.precision} keeps whole float32 copies of the weights in each rank; where ranks share "
            "weights or the optimizer's state use precision: fp16"
        )


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


def of_loss(c: TrialConfig, _: Workload) -> Iterator[str]:
    if c.loss in HIDDEN_LOSSES and c.model_code is not None and not c.is_hugging_face:
        yield f"loss {c.loss} takes hidden states and the head's weight, and {c.model_code} returns logits"
    if c.loss in LOSSES and LOSSES[c.loss].function and c.device_type != "cuda":
        yield f"loss {c.loss} is made of Triton kernels and needs device: cuda"
