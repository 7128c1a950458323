"""Flags that follow from the times themselves: outliers, and times that no device can reach."""

from collections.abc import Sequence
from statistics import median

import numpy as np

from lmsweep.trials.analytic.datasheets import Device, boost_of, peak_flops
from lmsweep.trials.analytic.formulas import PASSES, PHASE_PASSES, attention_flops, forward_flops, recomputed_flops
from lmsweep.trials.analytic.packed_scores import least_share_of_scores
from lmsweep.trials.results.outcome import Flag, those_that_hold
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.statistics.median_interval import count_outliers


def flags_of_times(
    config: TrialConfig, phase: str, seconds: Sequence[float], device: Device | None, flops: int | None = None
) -> tuple[Flag, ...]:
    """Return the flags of one phase of a whole model. `flops` are those counted for the user's own model. Without a
    datasheet (`device` is None) `physics_violation` is never set."""
    found = {
        Flag.OUTLIERS: count_outliers(np.array([seconds]))[0] > 0,
        Flag.PHYSICS_VIOLATION: exceeds_peak(config, phase, median(seconds), device, flops),
    }
    return those_that_hold(found)


def exceeds_peak(
    config: TrialConfig, phase: str, seconds: float, device: Device | None, flops: int | None = None
) -> bool:
    """Return whether the phase's minimum FLOPs in this time exceed the device's peak; False if either is unknown."""
    passes = PASSES[config.mode] if phase == "step" else PHASE_PASSES.get(phase)
    if config.has_counted_flops or config.step is not None:
        least = (flops or 0) / 2  # half of them are certain: a causal mask may spare half of attention
    elif passes:
        least = passes * least_forward_flops(config) + (least_recomputed_flops(config) if passes > 1 else 0)
    else:
        return False
    return above_peak(least, seconds, device, config)


def above_peak(flops: float, seconds: float, device: Device | None, config: TrialConfig) -> bool:
    """Return whether the device allows fewer FLOPs in this time at its highest clock; False if its peak is unknown."""
    peak = peak_flops(device, config.precision) if device else None
    return device is not None and peak is not None and flops > boost_of(device) * peak * seconds


def least_forward_flops(config: TrialConfig) -> float:
    """Return the minimum FLOPs of a forward pass: attention's products that a causal mask, and a window, leave."""
    batch = {"context_length": config.context_length, "batch_size": config.batch_size}
    terms = config.size.terms
    attention = terms["num_layers"] * attention_flops(phase="forward", d_model=terms["query_width"], **batch)
    left_out = attention * (1 - least_share_of_scores(config))
    return float(forward_flops(**terms, vocab_size=config.vocab_size, **batch) - left_out)


def least_recomputed_flops(config: TrialConfig) -> float:
    """Return the minimum FLOPs that checkpointing computes again in backward."""
    terms, tokens = config.size.terms, config.batch_size * config.context_length
    blocks = least_forward_flops(config) - 2 * tokens * config.d_model * config.vocab_size
    block, again = blocks / terms["num_layers"], config.recomputation.recomputed(terms["num_layers"])
    return float(recomputed_flops(again, terms, block=block, tokens=tokens, compiled=config.compilation.each_block))
