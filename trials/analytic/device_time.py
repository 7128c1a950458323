"""The seconds in which a device computes and moves bytes, from its datasheet: the roofline of a step as a sum.

The constants were fitted to one NVIDIA H200 (docs/performance.md). They know neither attention nor checkpointing, so
the seconds are good for the ratio between two devices, and for ranking trials before anything is measured.
"""

from lmsweep.trials.analytic.datasheets import Device, peak_flops
from lmsweep.trials.analytic.formulas import PASSES, forward_flops, parameter_count, saved_bytes
from lmsweep.trials.spec.config import TrialConfig

SHARE_OF_PEAK = 0.4
"""Share of a datasheet's FLOP/s that the matrix products of a step reach."""
TRAFFIC = {False: 4, True: 2}
"""Whether the step is compiled -> how often each byte saved for backward is moved."""


def device_seconds(config: TrialConfig, device: Device) -> float:
    """Return the busy seconds of one iteration of a whole model; 0 if its work is not known, as of the user's own."""
    if config.model_code or not (config.d_ff and config.num_layers and config.num_heads):
        return 0.0
    terms = config.size.terms
    size = {"d_model": terms["d_model"], "d_ff": config.d_ff * terms["active_experts"], "num_layers": config.num_layers}
    shape = {"context_length": config.context_length, "batch_size": config.batch_size}
    vocab_size, passes = config.vocab_size, PASSES[config.mode]
    narrow = config.precision in ("bf16", "fp16", "bf16_pure")
    kept = saved_bytes(**size, **shape, num_heads=config.num_heads, vocab_size=vocab_size, autocast=narrow)
    # Weights are read in each pass; gradients are written; AdamW reads and writes them and its two moments.
    weights = 4 * parameter_count(**terms, vocab_size=vocab_size) * (passes + 1 + 7 * (config.mode == "train_step"))
    moved = kept * TRAFFIC[config.compiles] * passes / 3 + weights
    flops = passes * forward_flops(**terms, **shape, vocab_size=vocab_size)
    return rate_seconds(flops, moved, config, device)


def rate_seconds(flops: float, moved: float, config: TrialConfig, device: Device) -> float:
    """Return the seconds of this many FLOPs in the configuration's precision, and of moving this many bytes."""
    peak = peak_flops(device, config.precision) or device.fp32
    return flops / (SHARE_OF_PEAK * peak) + moved / device.bytes_per_second
