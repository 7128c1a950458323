"""AdamW with its state sharded over the ranks (ZeRO stage 1)."""

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from lmsweep.trials.distributed.fully_sharded import part_of
from lmsweep.trials.model.optimizer import LEARNING_RATE
from lmsweep.trials.spec.config import TrialConfig


def sharded_optimizer(model: nn.Module, config: TrialConfig) -> ZeroRedundancyOptimizer:
    """AdamW of which each rank updates its share of the weights and broadcasts them as one tensor."""
    return ZeroRedundancyOptimizer(
        model.parameters(),
        optimizer_class=torch.optim.AdamW,
        parameters_as_bucket_view=True,
        lr=LEARNING_RATE,
        fused=config.optimizer == "adamw_fused",
        foreach=config.optimizer == "adamw_foreach",
    )


def own_optimizer(optimizer: torch.optim.Optimizer | None) -> torch.optim.Optimizer | None:
    """The optimizer that updates only this rank's share, without broadcasting; of an unsharded one, itself."""
    return optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer


def state_bytes(optimizer: torch.optim.Optimizer | None) -> int | None:
    """Bytes of the optimizer's state in this process; 0 without an optimizer or before its first step.

    The user's own may keep its state in an optimizer that it holds. None if no state is found in either.
    """
    mine = own_optimizer(optimizer)
    if mine is None:
        return 0
    held = [one for one in vars(mine).values() if isinstance(one, torch.optim.Optimizer)]
    found = [
        part_of(value).nbytes
        for one in (mine, *held)
        for state in getattr(one, "state", {}).values()
        for value in state.values()
        if torch.is_tensor(value)
    ]
    return sum(found) if found or type(mine).__module__.startswith("torch.optim") else None
