"""The optimizer of the training step, by name or from a reference."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import cast

import torch
from torch import nn

from lmsweep.trials.code.calling import arguments_of, call
from lmsweep.trials.code.importing import load
from lmsweep.trials.spec.config import TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import is_reference

LEARNING_RATE = 1e-4

ADAMW = ("adamw_fused", "adamw_foreach", "adamw_loop")
"""PyTorch's forms of AdamW. They differ in kernels, not in results."""

_OF_TORCHAO = {"adamw_8bit": "AdamW8bit", "adamw_4bit": "AdamW4bit"}

CLASS_PARAMETERS = ("optimizer_cls", "optimizer_class")
"""Names of the parameter by which a sharded optimizer takes the class of optimizer whose state it shards."""


class Muon(torch.optim.Optimizer):
    """Muon for the matrices of the blocks, fused AdamW for all other weights, as its author advises (Jordan 2024)."""

    def __init__(self, matrices: list[nn.Parameter], others: list[nn.Parameter], lr: float) -> None:
        super().__init__([*matrices, *others], {"lr": lr})
        self.parts = [torch.optim.Muon(matrices, lr=lr), torch.optim.AdamW(others, lr=lr, fused=True)]

    def step(self, closure: object = None) -> None:  # type: ignore[override] # the training step gives no closure
        """Update all weights."""
        for part in self.parts:
            part.step()
            self.state.update(part.state)


def make_optimizer(model: nn.Module, config: TrialConfig, *, capturable: bool = False) -> torch.optim.Optimizer:
    """Return the configuration's optimizer over all weights, by name or the user's class.

    capturable: whether CUDA graphs can record it; its step counts are then on the device. Raises UnsupportedError if a
    package is missing, a weight has no such optimizer or the user's class shards its state over ranks, and TypeError if
    what the user's class returns cannot step.
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
    if config.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    if config.optimizer == "adafactor":
        return torch.optim.Adafactor(model.parameters(), lr=LEARNING_RATE)
    if config.optimizer == "muon":
        return _muon(model.named_parameters())
    if config.optimizer in _OF_TORCHAO:
        return _of_torchao(config, model)
    return torch.optim.AdamW(
        model.parameters(),
        lr=LEARNING_RATE,
        fused=config.optimizer == "adamw_fused",
        foreach=config.optimizer == "adamw_foreach",
        capturable=capturable,
    )


def _muon(named: Iterable[tuple[str, nn.Parameter]]) -> Muon:
    of_blocks: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, weight in named:
        (of_blocks if "blocks" in name and weight.dim() == 2 else others).append(weight)
    if not of_blocks:
        raise UnsupportedError("optimizer muon is for matrices in blocks, and the model has none")
    return Muon(of_blocks, others, LEARNING_RATE)


def _of_torchao(config: TrialConfig, model: nn.Module) -> torch.optim.Optimizer:
    try:
        low_bit = import_module("torchao.optim")
    except ImportError as error:
        raise UnsupportedError(f"optimizer {config.optimizer} needs the package torchao ({error})") from None
    return cast(torch.optim.Optimizer, getattr(low_bit, _OF_TORCHAO[config.optimizer])(model.parameters()))


def class_parameter(own: object) -> str | None:
    """Return the name of the parameter by which a user's optimizer takes another's class; None if it takes none."""
    try:
        parameters = inspect.signature(cast(Callable[..., object], own)).parameters
    except ValueError:  # a class of an extension module has no signature
        return None
    return next((name for name in CLASS_PARAMETERS if name in parameters), None)
