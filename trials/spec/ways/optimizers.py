"""Optimizers. To add one, add a row to OPTIMIZERS.

`lmsweep.trials.model.optimizer` imports and calls the class; plans, predictions and `best` read the row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LEARNING_RATE = 1e-4  # neither time nor memory depends on it while numbers stay finite


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """A class of optimizer and how it is called."""

    factory: str
    """The class, as `package.module.Name`; imported only in a trial."""
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"lr": LEARNING_RATE})
    """Its arguments after the weights. Without `lr` it has its own default."""
    state_copies: int | None = None
    """Copies of the weights in its state; None: its memory is not predicted."""
    capturable: bool = False
    """Whether it takes `capturable`, so that CUDA graphs can record it."""
    sharded: bool = False
    """Whether ranks may each update a part of a weight, as with AdamW."""
    only_matrices: bool = False
    """Whether it is for the matrices of blocks; fused AdamW then updates the other weights."""

    @property
    def is_of_torch(self) -> bool:
        return self.factory.startswith("torch.")

    @property
    def is_fused(self) -> bool:
        """Whether one kernel updates many weights, and reads the gradient scale on the device."""
        return bool(self.arguments.get("fused"))


def _adamw(**form: bool) -> Optimizer:
    arguments = {"lr": LEARNING_RATE, **form}
    return Optimizer(factory="torch.optim.AdamW", arguments=arguments, state_copies=2, capturable=True, sharded=True)


OPTIMIZERS: dict[str, Optimizer] = {
    "adamw_fused": _adamw(fused=True),
    "adamw_foreach": _adamw(foreach=True),
    "adamw_loop": _adamw(foreach=False),
    "adamw_8bit": Optimizer(factory="torchao.optim.AdamW8bit", arguments={}),
    "adamw_4bit": Optimizer(factory="torchao.optim.AdamW4bit", arguments={}),
    "sgd": Optimizer(factory="torch.optim.SGD", arguments={"lr": LEARNING_RATE, "momentum": 0.9}, state_copies=1),
    "adafactor": Optimizer(factory="torch.optim.Adafactor"),
    "muon": Optimizer(factory="torch.optim.Muon", state_copies=1, only_matrices=True),
}
"""Word of the field `optimizer` -> the optimizer."""

SHARDED = tuple(name for name, one in OPTIMIZERS.items() if one.sharded)
UNPREDICTED = tuple(name for name, one in OPTIMIZERS.items() if one.state_copies is None)
