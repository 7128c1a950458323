"""The seconds in which a device computes and moves bytes in a step, from its datasheet.

A step is divided into parts: matrix products, attention, activations, logits, the optimizer's update. Each part takes
as long as at the datasheet's rates, times a factor that was fitted to measured steps (FACTORS).
"""

from typing import NamedTuple

from lmsweep.trials.analytic.datasheets import Device, peak_flops
from lmsweep.trials.analytic.document_lengths import share_of_packed_scores
from lmsweep.trials.analytic.formulas import PASSES, attention_flops, forward_flops, parameter_count
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.attentions import ATTENTIONS
from lmsweep.trials.spec.ways.losses import FUSED_LOSSES
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.words import FLOAT8_PRECISIONS

FACTORS = {
    "products": 1.42,
    "float8_products": 1.62,
    "attention": 2.56,
    "flash_attention": 4.06,
    "scores": 13,
    "compiled_scores": 3.31,
    "activations": 39.2,
    "compiled_activations": 14.4,
    "float8_casts": 116,
    "compiled_float8_casts": 7.07,
    "blocks": 128,
    "compiled_blocks": 47.5,
    "autocast": 3.45,
    "logits": 4.6,
    "update": 9.17,
    "separate_update": 24.8,
}
"""Part of a step -> its time per time at the datasheet's rates; from `python -m benchmarks.fit_device_time`."""


class BusyTime(NamedTuple):
    """Seconds in which the device is busy in one iteration: forward and backward, and the optimizer's update."""

    computing: float
    updating: float


def busy_time(config: TrialConfig, device: Device) -> BusyTime | None:
    """Return the busy seconds of one iteration of a whole model; None if its work is not known."""
    if not has_known_work(config):
        return None
    return BusyTime(
        computing=seconds_of(model_parts(config, device)), updating=seconds_of(update_parts(config, device))
    )


def seconds_of(parts: dict[str, float]) -> float:
    """Return the busy seconds of parts that are given in seconds at the datasheet's rates."""
    return sum(FACTORS[name] * seconds for name, seconds in parts.items())


def has_known_work(config: TrialConfig) -> bool:
    """Whether the trial has a model of lmsweep's, whose FLOPs are a closed form."""
    return not config.model_code and bool(config.d_ff and config.num_layers and config.num_heads)


def model_parts(config: TrialConfig, device: Device) -> dict[str, float]:
    """Return the parts of forward and backward, as those below in seconds at the datasheet's rates."""
    terms, layers = config.size.terms, config.num_layers or 1
    shape = {"context_length": config.context_length, "batch_size": config.batch_size}
    tokens, passes = config.batch_size * config.context_length, PASSES[config.mode]
    head = 2 * tokens * config.d_model * config.vocab_size
    attended = attention_flops(phase="forward", d_model=config.head_width * (config.num_heads or 1), **shape)
    block = (forward_flops(**terms, **shape, vocab_size=config.vocab_size) - head) / layers - attended
    runs = passes * layers + (config.recomputation.recomputed(layers).blocks if passes > 1 else 0)
    compiled = "compiled_" if config.compile != "none" else ""
    peak = peak_flops(device, config.precision) or device.fp32
    formats = PRECISIONS[config.precision]
    in_float8 = formats.float8_recipe is not None
    width = (config.d_ff or 0) * terms["active_experts"]
    moved = runs * tokens * width * _element_bytes(config) / device.bytes_per_second
    parts = {
        compiled + "activations": moved,
        compiled + "blocks": runs * 1e-6,  # for their small kernels: so many microseconds
    } | attention_parts(config, device, runs)
    if in_float8:
        # The output head stays in bfloat16.
        parts["float8_products"] = runs * block / peak
        parts["products"] = passes * head / (peak_flops(device, "bf16") or peak)
        parts[compiled + "float8_casts"] = moved
    else:
        parts["products"] = (runs * block + passes * head) / peak
    if formats.autocast:  # autocast copies the weights, and gradients back
        parts["autocast"] = 4 * parameter_count(**terms, vocab_size=config.vocab_size) / device.bytes_per_second
    return parts | _logits_part(config, device, passes)


def loss_parts(config: TrialConfig, device: Device) -> dict[str, float]:
    """Return the parts of the output head and the loss alone, forward and backward."""
    elements = config.batch_size * config.context_length * config.vocab_size
    products = 3 * 2 * elements * config.d_model / (peak_flops(device, config.precision) or device.fp32)
    return {"products": products} | _logits_part(config, device, passes=3)


def attention_parts(config: TrialConfig, device: Device, runs: float) -> dict[str, float]:
    """Return the parts of attention without its projections; runs: forward passes of a block, backward being two."""
    heads = config.num_heads or 1
    shape = {"context_length": config.context_length, "batch_size": config.batch_size}
    flops = runs * attention_flops(phase="forward", d_model=config.head_width * heads, **shape)
    if is_reference(config.attention) or ATTENTIONS[config.attention].stores_scores:
        scores = runs * config.batch_size * heads * config.context_length**2
        compiled = "compiled_" if config.compile != "none" else ""
        return {compiled + "scores": 4 * scores / device.bytes_per_second}
    flops *= share_of_packed_scores(
        "hardware",
        context_length=config.context_length,
        document_length=config.document_length or config.context_length,
        causal=config.causal,
        window=config.window,
    )
    if not PRECISIONS[config.precision].is_narrow:
        return {"attention": flops / device.fp32}  # its kernel uses no tensor cores
    # Float8 is for linear layers.
    peak = peak_flops(device, "bf16" if config.precision in FLOAT8_PRECISIONS else config.precision) or device.fp32
    return {"attention" if ATTENTIONS[config.attention].uses_cudnn else "flash_attention": flops / peak}


def update_parts(config: TrialConfig, device: Device) -> dict[str, float]:
    """Return the part of the optimizer's update."""
    if config.mode != "train_step":
        return {}
    count = parameter_count(**config.size.terms, vocab_size=config.vocab_size)
    name = "update" if config.optimizer in OPTIMIZERS and OPTIMIZERS[config.optimizer].is_fused else "separate_update"
    return {name: PRECISIONS[config.precision].weight_bytes * count / device.bytes_per_second}


def _logits_part(config: TrialConfig, device: Device, passes: int) -> dict[str, float]:
    if config.loss in FUSED_LOSSES:
        return {}
    elements = config.batch_size * config.context_length * config.vocab_size
    return {"logits": passes * elements * 4 / device.bytes_per_second}


def _element_bytes(config: TrialConfig) -> int:
    return 2 if PRECISIONS[config.precision].is_narrow else 4
