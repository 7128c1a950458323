"""Flags that follow from the times themselves: are there outliers, is it possible at all."""

from collections.abc import Sequence
from statistics import median

import numpy as np

from lmsweep.trials.analytic.datasheets import Device, peak_flops
from lmsweep.trials.analytic.formulas import PASSES, PHASE_PASSES, attention_flops, forward_flops
from lmsweep.trials.analytic.median_interval import count_outliers
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig


def flags_of_times(
    config: TrialConfig, phase: str, seconds: Sequence[float], device: Device | None
) -> tuple[Flag, ...]:
    """The flags of one phase of a whole model, by its samples and by the datasheet of the device, if there is one."""
    found = {
        Flag.OUTLIERS: count_outliers(np.array([seconds]))[0] > 0,
        Flag.PHYSICS_VIOLATION: exceeds_peak(config, phase, median(seconds), device),
    }
    return tuple(flag for flag, holds in found.items() if holds)


def exceeds_peak(config: TrialConfig, phase: str, seconds: float, device: Device | None) -> bool:
    """Whether the least work of this phase in this time is more than the datasheet allows; False where either is not
    known.
    """
    peak = peak_flops(device, config.precision) if device else None
    passes = PASSES[config.mode] if phase == "step" else PHASE_PASSES.get(phase)
    return bool(peak and passes and passes * least_forward_flops(config) > peak * seconds)


def least_forward_flops(config: TrialConfig) -> float:
    """FLOPs of a forward pass that no implementation can do without: of attention, only what the mask leaves."""
    batch = {"context_length": config.context_length, "batch_size": config.batch_size}
    size = {name: getattr(config, name) for name in ("d_model", "d_ff", "num_layers", "vocab_size")}
    attention = size["num_layers"] * attention_flops(phase="forward", d_model=config.d_model, **batch)
    return float(forward_flops(**size, **batch) - attention / 2)
