"""The seconds in which a device computes and moves bytes, from its datasheet: the roofline of a step as a sum.

The constants were fitted to one NVIDIA H200 (docs/performance.md). They know no checkpointing, so
the seconds are good for the ratio between two devices, and for ranking trials before anything is measured.
"""

from typing import NamedTuple

from lmsweep.trials.analytic.datasheets import Device, peak_flops
from lmsweep.trials.analytic.formulas import PASSES, forward_flops, parameter_count, saved_bytes
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference

SHARE_OF_PEAK = 0.4
"""Share of a datasheet's FLOP/s that the matrix products of a step reach."""
TRAFFIC = {False: 4, True: 2}
"""Whether the step is compiled -> how often each byte saved for backward is moved."""
WRITTEN_OUT = ("naive", "naive_softmax", "sdpa_math")
"""Attention that writes the matrix of scores to memory."""


class BusyTime(NamedTuple):
    """Seconds in which the device is busy in one iteration."""

    computing: float
    """Forward and backward."""
    updating: float
    """The optimizer's update."""


def device_seconds(config: TrialConfig, device: Device) -> float:
    """Return the busy seconds of one iteration of a whole model; 0 if its work is not known, as of the user's own."""
    busy = busy_time(config, device)
    return busy.computing + busy.updating if busy else 0.0


def busy_time(config: TrialConfig, device: Device) -> BusyTime | None:
    """Return the busy seconds of one iteration of a whole model; None if its work is not known."""
    if config.model_code or not (config.d_ff and config.num_layers and config.num_heads):
        return None
    terms = config.size.terms
    size = {"d_model": terms["d_model"], "d_ff": config.d_ff * terms["active_experts"], "num_layers": config.num_layers}
    shape = {"context_length": config.context_length, "batch_size": config.batch_size}
    vocab_size, passes = config.vocab_size, PASSES[config.mode]
    narrow = config.precision not in ("fp32", "tf32")
    kept = saved_bytes(**size, **shape, num_heads=config.num_heads, vocab_size=vocab_size, autocast=narrow)
    if config.attention not in WRITTEN_OUT and not is_reference(config.attention):  # fused: no scores in memory
        scores = config.batch_size * config.num_heads * config.context_length**2
        kept -= config.num_layers * scores * (6 if narrow else 8)
    # Weights are read in each pass, gradients are written. AdamW reads and writes them and its two moments.
    weights = 4 * parameter_count(**terms, vocab_size=vocab_size)
    moved = kept * TRAFFIC[config.compiles] * passes / 3 + weights * (passes + 1)
    flops = passes * forward_flops(**terms, **shape, vocab_size=vocab_size)
    return BusyTime(
        computing=rate_seconds(flops, moved, config, device),
        updating=7 * weights / device.bytes_per_second * (config.mode == "train_step"),
    )


def rate_seconds(flops: float, moved: float, config: TrialConfig, device: Device) -> float:
    """Return the seconds of this many FLOPs in the configuration's precision, and of moving this many bytes."""
    peak = peak_flops(device, config.precision) or device.fp32
    return flops / (SHARE_OF_PEAK * peak) + moved / device.bytes_per_second
