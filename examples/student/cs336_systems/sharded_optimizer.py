"""Optimizer state sharding: each rank updates a share of the parameters and broadcasts them."""

from typing import Any

import torch
import torch.distributed as dist


class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params, optimizer_cls: type[torch.optim.Optimizer], **kwargs: Any) -> None:
        self.optimizer_cls, self.kwargs, self.inner = optimizer_cls, kwargs, None
        self.owners: list[tuple[torch.nn.Parameter, int]] = []
        super().__init__(params, kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        rank, ranks = dist.get_rank(), dist.get_world_size()
        held = [0] * ranks
        mine = []
        for parameter in self.param_groups[-1]["params"]:
            owner = held.index(min(held))
            held[owner] += parameter.numel()
            self.owners.append((parameter, owner))
            if owner == rank:
                mine.append(parameter)
        group = {**{name: value for name, value in param_group.items() if name != "params"}, "params": mine}
        if self.inner is None:
            self.inner = self.optimizer_cls([group], **self.kwargs)
        else:
            self.inner.add_param_group(group)

    def step(self, closure=None, **kwargs):
        loss = self.inner.step(closure, **kwargs)
        for parameter, owner in self.owners:
            dist.broadcast(parameter.data, src=owner)
        return loss
