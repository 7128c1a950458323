"""AdamW with its state sharded over the ranks (ZeRO stage 1)."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from lmsweep.trials.code.calling import arguments_of, call
from lmsweep.trials.code.importing import load
from lmsweep.trials.model.adapted_layers import trainable
from lmsweep.trials.model.optimizer import as_optimizer, class_parameter, optimizer_class
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.optimizers import LEARNING_RATE, OPTIMIZERS


def sharded_optimizer(model: nn.Module, config: TrialConfig) -> ZeroRedundancyOptimizer:
    """The optimizer; each rank updates its share of the weights and broadcasts them as one tensor."""
    return ZeroRedundancyOptimizer(
        trainable(model),
        optimizer_class=optimizer_class(config.optimizer),
        parameters_as_bucket_view=True,
        **OPTIMIZERS[config.optimizer].arguments,
    )


SHARDED_CLASS = torch.optim.AdamW
"""The class of optimizer that is passed to the user's class, which shards its state."""


def shards_state(config: TrialConfig) -> bool:
    """Whether the user's optimizer takes a class of optimizer as a parameter, whose state it shards."""
    return is_reference(config.optimizer) and class_parameter(load(config.optimizer)) is not None


def users_sharded_optimizer(model: nn.Module, config: TrialConfig) -> torch.optim.Optimizer:
    """The user's optimizer, called with the weights, SHARDED_CLASS and arguments. Raises RequestError and TypeError."""
    own = cast(Callable[..., object], load(config.optimizer))
    name = class_parameter(own)
    assert name is not None, "it takes the class of an optimizer"
    make = partial(own, trainable(model))
    arguments: dict[str, Any] = {name: SHARDED_CLASS, "lr": LEARNING_RATE, **arguments_of(config.optimizer_args)}
    parameters = inspect.signature(make).parameters
    if "lr" not in parameters and not takes_any(parameters):
        del arguments["lr"]
    return as_optimizer(call(make, {}, arguments, config.optimizer), config)


def takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
