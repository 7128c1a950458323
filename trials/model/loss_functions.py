"""The loss of the training step, by name or from a reference.

Some losses take the logits. Others take the hidden states and the weight of the output head and compute both together,
so that the logits of all tokens are never in memory at once.
"""

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from lmsweep.trials.code.importing import load
from lmsweep.trials.machine.gpu.accelerator import why_not_installed
from lmsweep.trials.model.compiler import ready_compiler
from lmsweep.trials.model.transformer.layers import at_least_float32
from lmsweep.trials.model.transformer.transformer import cross_entropy
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.losses import LOSSES


class LossFunction(NamedTuple):
    function: Callable[..., Tensor]
    """From logits (batch, tokens, vocabulary) and targets (batch, tokens), or from hidden states (batch, tokens,
    d_model), the head's weight (vocabulary, d_model) and targets, to a scalar."""
    takes_hidden: bool = False


def torch_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """PyTorch's cross_entropy, in at least float32."""
    return functional.cross_entropy(at_least_float32(logits).flatten(0, -2), targets.flatten())


def chunked(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """PyTorch's linear_cross_entropy, which computes logits, loss and gradients for some tokens at a time."""
    options = torch.nn.LinearCrossEntropyOptions()  # PyTorch chooses the size of the chunks
    return functional.linear_cross_entropy(*_flat(hidden, weight, targets), options=options)


def liger(make: Callable[[], Callable[..., Tensor]], hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The fused linear cross-entropy of the package liger-kernel (Hsu et al. 2024); `make` is its class."""
    hidden, weight, targets = _flat(hidden, weight, targets)
    return make()(weight, hidden, targets)


def cut_cross_entropy(function: Callable[..., Tensor], hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The loss of the package cut-cross-entropy (Wijmans et al. 2025)."""
    return function(*_flat(hidden, weight, targets))


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "eager": cross_entropy,
    "cross_entropy": torch_cross_entropy,
    "compiled": torch_cross_entropy,
    "chunked": chunked,
    "liger": liger,
    "cut_cross_entropy": cut_cross_entropy,
}


def loss_for(config: TrialConfig) -> LossFunction:
    """Return the configuration's loss. Raises UnsupportedError if this machine or PyTorch lacks it or the model gives
    no hidden states, and RequestError if the user's function takes other arguments."""
    loss = _users_loss(config.loss) if is_reference(config.loss) else _named_loss(config)
    if loss.takes_hidden and config.model_code is not None and not config.is_hugging_face:
        raise UnsupportedError(
            f"loss {config.loss} takes hidden states and the head's weight, and {config.model_code} returns logits"
        )
    return loss


def _named_loss(config: TrialConfig) -> LossFunction:
    way, function = LOSSES[config.loss], _FUNCTIONS[config.loss]
    if reason := why_not_installed("loss", config.loss):
        raise UnsupportedError(reason)
    if way.function:
        module, _, name = way.function.rpartition(".")
        function = partial(function, getattr(import_module(module), name))
    if way.is_compiled:
        ready_compiler(config)
        function = torch.compile(function, dynamic=config.dynamic_shapes)
    return LossFunction(function=function, takes_hidden=way.takes_hidden)


def _users_loss(text: str) -> LossFunction:
    function = cast(Callable[..., Tensor], load(text))
    parameters = inspect.signature(function).parameters.values()
    takes = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = sum(one.default is one.empty for one in takes)
    if len(takes) < 2 or required > 3:
        raise RequestError(
            f"{text}{inspect.signature(function)}: a loss takes logits and targets, or hidden states, the head's "
            "weight and targets"
        )
    return LossFunction(function=function, takes_hidden=required == 3)


def _flat(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One row per token; operands are cast as autocast casts those of products, because it skips these functions."""
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        hidden, weight = (one.to(torch.get_autocast_dtype(device)) for one in (hidden, weight))
    return hidden.flatten(0, -2), weight, targets.flatten()
