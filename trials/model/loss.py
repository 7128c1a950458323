"""The loss of the training step, by name or from a reference."""

import inspect
from collections.abc import Callable
from typing import cast

from torch import Tensor
from torch.nn import functional

from lmsweep.trials.code.importing import load
from lmsweep.trials.model.transformer import at_least_float32, cross_entropy
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.reference import is_reference

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""From logits (batch, tokens, vocabulary) and targets (batch, tokens) to a scalar."""


def torch_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean negative log-likelihood by PyTorch's cross_entropy, in at least float32."""
    return functional.cross_entropy(at_least_float32(logits).flatten(0, -2), targets.flatten())


LOSS: dict[str, LossFunction] = {"eager": cross_entropy, "cross_entropy": torch_cross_entropy}


def loss_for(config: TrialConfig) -> LossFunction:
    """Return the configuration's loss. Raises RequestError if the user's function does not take logits and targets."""
    if not is_reference(config.loss):
        return LOSS[config.loss]
    function = cast(LossFunction, load(config.loss))
    parameters = inspect.signature(function).parameters.values()
    takes = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if len(takes) < 2 or sum(one.default is one.empty for one in takes) > 2:
        raise RequestError(f"{config.loss}{inspect.signature(function)}: a loss takes logits and targets")
    return function
