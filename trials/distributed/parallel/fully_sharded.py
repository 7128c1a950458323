"""Weights, gradients and optimizer state sharded over the ranks, by PyTorch's `fully_shard` (FSDP2; ZeRO stage 3).

Each block is one group of weights, and what is outside of the blocks another. A group's weights are gathered before its
forward and again before its backward; its gradients are averaged and scattered after its backward.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from lmsweep.trials.distributed.ranks.process_group import Synchronizer
from lmsweep.trials.machine.torch_private import drop_unsent_gradients, weight_groups
from lmsweep.trials.model.host_copies import part_of
from lmsweep.trials.spec.config import TrialConfig


class FullyShard(Synchronizer):
    """`fully_shard` of each block and of the whole model, as a way to average gradients."""

    def __init__(self, model: nn.Module, blocks: Sequence[nn.Module], config: TrialConfig, mesh: DeviceMesh) -> None:
        """`mesh` is the data-parallel mesh: of ranks, or with hsdp of (replicas, shards)."""
        super().__init__(model)
        groups = [_elements(block) for block in blocks]
        whole = _elements(model)
        group_size = int(config.reshard) if config.reshard.isdecimal() else None  # else it is true or false
        reshards = config.reshard == "true" and config.ddp != "zero2"  # which keeps gathered weights for backward
        options: dict[str, Any] = {"mesh": mesh, "mp_policy": _policy(config)}
        for block in blocks:
            fully_shard(block, reshard_after_forward=group_size or reshards, **options)
        # Backward begins with the weights outside of the blocks, so they stay. This is also fully_shard's default.
        self._root: FSDPModule = fully_shard(model, reshard_after_forward=False, **options)
        self._sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
        self.shards: list[nn.Parameter] = list(model.parameters())
        """This rank's part of each weight."""
        largest = max([whole - sum(groups), *groups])
        size = 2 if config.gather == "bf16" else self.shards[0].element_size()
        self.local_bytes = (whole + 2 * largest) * size + sum(part_of(shard).nbytes for shard in self.shards)
        """Bytes that `local` takes at most: all weights (with tp this rank's parts of layers), what the largest group
        of them is gathered into and split from, and zeros for the optimizer."""
        self._is_local = False

    @contextmanager
    def local(self) -> Iterator[None]:
        """A context without communication: the whole weights are gathered at its beginning and freed at its end.
        Gradients are of the whole weights and stay in this rank. The optimizer updates this rank's part of the weights
        by gradients of zero, which takes it as long as any others."""
        usual = [[group.post_forward_mesh_info for group in weight_groups(module)] for module in self._sharded]
        for module in self._sharded:
            module.unshard()
        self._root.set_requires_gradient_sync(False)
        self._root.set_reshard_after_forward(False)
        self._root.set_reshard_after_backward(False)
        self._zeros = {shard: torch.zeros_like(shard) for shard in self.shards if shard.requires_grad}
        self._is_local = True
        try:
            yield
        finally:
            self._is_local = False
            del self._zeros
            self._root.set_requires_gradient_sync(True)
            self._root.set_reshard_after_backward(True)
            for module, after_forward in zip(self._sharded, usual, strict=True):
                # PyTorch's own method sets only true or false, which forgets a number of ranks.
                for group, mesh_info in zip(weight_groups(module), after_forward, strict=True):
                    group.post_forward_mesh_info = mesh_info
            for parameter in [*self.model.parameters(), *self.shards]:
                parameter.grad = None
            for module in self._sharded:
                module.reshard()
                for group in weight_groups(module):
                    drop_unsent_gradients(group)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """A context for the micro-batches before the last: weights are gathered, gradients are kept whole."""
        self._root.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self._root.set_requires_gradient_sync(not self._is_local)

    def finish(self) -> None:
        """Backward has waited for the gradients already."""
        if self._is_local:
            for shard, zero in self._zeros.items():
                shard.grad = zero


def _elements(module: nn.Module) -> int:
    """The elements of weights that this rank has before they are sharded: with tp, of its part of a layer."""
    return sum(part_of(weight).numel() for weight in module.parameters())


def _policy(config: TrialConfig) -> MixedPrecisionPolicy:
    if config.gather == "fp32":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
