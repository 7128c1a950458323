"""Whether a step trains all that it seems to train: each weight that requires a gradient gets one, and is updated."""

from collections.abc import Iterable

import torch
from torch import nn

from lmsweep.trials.machine.torch_private import times_written
from lmsweep.trials.model.adapted_layers import trainable
from lmsweep.trials.model.training_step import PHASES, TrainingStep
from lmsweep.trials.results.outcome import Flag, those_that_hold


def without_gradient(model: nn.Module) -> list[str]:
    """Return the names of trained weights that have no gradient after backward."""
    return [name for name, weight in model.named_parameters() if weight.requires_grad and weight.grad is None]


def flags_of_training(step: TrainingStep) -> tuple[Flag, ...]:
    """Run another iteration, which is not measured; return the flags about its gradients and its update."""
    names = PHASES[step.config.mode]
    if "backward" not in names:
        return ()
    computing = [phase for phase in step.phases() if phase.name != "optimizer"]
    for phase in computing:
        phase.run()
    found = {Flag.NO_GRADIENT: bool(without_gradient(step.model)), Flag.NO_UPDATE: False}
    if "optimizer" in names:
        weights = [weight for weight in trainable(step.model) if _must_change(weight)]
        before, scale = _states(weights), step.scaler.get_scale()
        step.optimize()
        same = any(one == other for one, other in zip(before, _states(weights), strict=True))
        found[Flag.NO_UPDATE] = same and step.scaler.get_scale() >= scale  # a lower scale: only this update was skipped
    step.drop()
    return those_that_hold(found)


def _must_change(weight: nn.Parameter) -> bool:
    """Whether an update must change the weight: it has a gradient, and more than 16 bits, which may round it away."""
    return weight.dtype.itemsize >= 4 and weight.grad is not None and bool(weight.grad.any())


def _states(weights: Iterable[nn.Parameter]) -> list[tuple[int, float]]:
    """For each weight: how often it was written, and its sum of magnitudes, which also shows writes to its `data`."""
    types = {"mps": torch.float32}  # which has no float64
    with torch.no_grad():
        sums = [one.abs().sum(dtype=types.get(one.device.type, torch.float64)) for one in weights]
    return [(times_written(one), float(total)) for one, total in zip(weights, sums, strict=True)]
