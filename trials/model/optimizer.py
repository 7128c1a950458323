"""The optimizer of the training step, by name or from a reference."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import nn

from lmsweep.trials.code.calling import arguments_of, call
from lmsweep.trials.code.importing import load
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import is_reference

LEARNING_RATE = 1e-4

CLASS_PARAMETERS = ("optimizer_cls", "optimizer_class")
"""Names of the parameter by which a sharded optimizer takes the class of optimizer whose state it shards."""


def make_optimizer(model: nn.Module, config: TrialConfig, *, capturable: bool = False) -> torch.optim.Optimizer:
    """Return the configuration's optimizer over all weights: AdamW in one of PyTorch's forms, or the user's class.

    capturable: whether CUDA graphs can record it; its step counts are then on the device. Raises TypeError if what the
    user's class returns cannot step, UnsupportedError if the class shards its state over ranks.
    """
    if is_reference(config.optimizer):
        own = cast(Callable[..., object], load(config.optimizer))
        if class_parameter(own):
            raise UnsupportedError(f"{config.optimizer} shards its state over ranks; the workload ddp measures it")
        weights = list(model.parameters())
        made = call(partial(own, weights), {"lr": LEARNING_RATE}, arguments_of(config.optimizer_args), config.optimizer)
        if not (hasattr(made, "step") and hasattr(made, "zero_grad")):
            raise TypeError(f"{config.optimizer} returned a {type(made).__name__}; an optimizer has step and zero_grad")
        return cast(torch.optim.Optimizer, made)
    return torch.optim.AdamW(
        model.parameters(),
        lr=LEARNING_RATE,
        fused=config.optimizer == "adamw_fused",
        foreach=config.optimizer == "adamw_foreach",
        capturable=capturable,
    )


def class_parameter(own: object) -> str | None:
    """Return the name of the parameter by which a user's optimizer takes another's class; None if it takes none."""
    try:
        parameters = inspect.signature(cast(Callable[..., object], own)).parameters
    except ValueError:  # a class of an extension module has no signature
        return None
    return next((name for name in CLASS_PARAMETERS if name in parameters), None)
