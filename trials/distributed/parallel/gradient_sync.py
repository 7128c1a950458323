"""How ranks average their gradients: the variants of data-parallel training that are compared.

Each leaves the mean over the ranks in every parameter's `grad`. `trials/spec/ways/ddp_variants.py` names their classes.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector

from lmsweep.trials.distributed.ranks.process_group import Mean, Synchronizer
from lmsweep.trials.machine.torch_private import foreach_copy, replaced
from lmsweep.trials.model.host_copies import part_of
from lmsweep.trials.spec.ways.ddp_variants import DDP_VARIANTS

DEFAULT_BUCKET_BYTES = 25 * 2**20
"""The default of DistributedDataParallel."""

MakeSynchronizer = Callable[[nn.Module, int | None], Synchronizer]
"""Attaches a variant to a model; takes the size of a bucket in bytes, None for the default."""


class _Averaging(Synchronizer):
    """What lmsweep's variants have in common."""

    def __init__(
        self, model: nn.Module, bucket_bytes: int | None = None, group: dist.ProcessGroup | None = None
    ) -> None:
        """`group`: the ranks that average their gradients; None for all."""
        super().__init__(model)
        self.parameters: list[Tensor] = [one for one in model.parameters() if one.requires_grad]
        self.mean = Mean(group)
        self.synchronizes = True

    def local(self) -> AbstractContextManager[None]:
        return replaced(self, "synchronizes", False)

    def gradients(self) -> list[Tensor]:
        return [part_of(gradient_of(parameter)) for parameter in self.parameters]


class Naive(_Averaging):
    """One all-reduce per parameter, after backward."""

    def finish(self) -> None:
        if self.synchronizes:
            gradients = self.gradients()
            for gradient in gradients:
                self.mean.start(gradient).wait()
            self.mean.finish(gradients)


class Flat(_Averaging):
    """One all-reduce of all gradients, concatenated into one vector, after backward."""

    def finish(self) -> None:
        if self.synchronizes:
            vector = parameters_to_vector(self.gradients())
            self.mean.start(vector).wait()
            self.mean.finish([vector])
            for parameter, view in zip(self.parameters, split_like(vector, self.parameters), strict=True):
                parameter.grad = view


class Overlap(_Averaging):
    """One all-reduce per parameter, started as soon as backward has computed its gradient."""

    def __init__(self, model: nn.Module, bucket_bytes: int | None = None) -> None:
        super().__init__(model)
        self._works: list[dist.Work] = []
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, parameter: Tensor) -> None:
        if self.synchronizes:
            self._works.append(self.mean.start(gradient_of(parameter)))

    def finish(self) -> None:
        if self.synchronizes:
            for work in self._works:
                work.wait()
            self._works.clear()
            self.mean.finish(self.gradients())


class Bucketed(_Averaging):
    """One all-reduce per bucket, started as soon as backward has computed the last gradient in it. Buckets are filled
    from the last layer to the first, the order in which backward computes gradients."""

    def __init__(self, model: nn.Module, bucket_bytes: int | None) -> None:
        super().__init__(model)
        size = bucket_bytes or DEFAULT_BUCKET_BYTES
        self.buckets = [Bucket(parameters) for parameters in fill_buckets(self.parameters[::-1], size)]
        bucket_of = {id(parameter): bucket for bucket in self.buckets for parameter in bucket.parameters}

        def ready(parameter: Tensor) -> None:
            if self.synchronizes:
                bucket = bucket_of[id(parameter)]
                bucket.missing -= 1
                if bucket.missing == 0:
                    bucket.fill()
                    bucket.work = self.mean.start(bucket.vector)

        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(ready)

    def finish(self) -> None:
        if self.synchronizes:
            for bucket in self.buckets:
                if bucket.work is None:
                    self.gradients()  # raises if a parameter takes no part in the loss
                assert bucket.work is not None, "backward gave every parameter a gradient"
                bucket.work.wait()
                bucket.work, bucket.missing = None, len(bucket.parameters)
            self.mean.finish([bucket.vector for bucket in self.buckets])


class TorchDdp(Synchronizer):
    """PyTorch's DistributedDataParallel. Its backward waits for the all-reduces, so `finish` does nothing."""

    def __init__(self, model: nn.Module, bucket_bytes: int | None) -> None:
        arguments = inspect.signature(DistributedDataParallel).parameters
        # The model's only buffers are constants, which need no broadcast. The argument's name depends on the version.
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in arguments else "broadcast_buffers"
        size = None if bucket_bytes is None else bucket_bytes / 2**20
        options: dict[str, Any] = {buffers: False, "bucket_cap_mb": size}
        super().__init__(DistributedDataParallel(model, **options))

    def local(self) -> AbstractContextManager[None]:
        no_sync: AbstractContextManager[None] = self.model.no_sync()  # type: ignore[operator]
        return no_sync


SYNCHRONIZERS: Mapping[str, MakeSynchronizer] = {
    name: globals()[variant.synchronizer] for name, variant in DDP_VARIANTS.items() if variant.synchronizer
}
"""Word of `ddp` -> what attaches it to a model."""


class Bucket:
    """Parameters whose gradients are reduced together, and the tensor that is sent and received."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        first = parameters[0]
        self.vector = torch.zeros(sum(one.numel() for one in parameters), dtype=first.dtype, device=first.device)
        """(elements of all parameters,)"""
        self.views = split_like(self.vector, parameters)
        self.missing = len(parameters)
        """Parameters whose gradients backward has not computed yet."""
        self.work: dist.Work | None = None
        """The all-reduce in flight."""

    def fill(self) -> None:
        """Copy the gradients into the bucket and make them views of it, so that they need not be copied back."""
        foreach_copy(self.views, [gradient_of(parameter) for parameter in self.parameters])
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view


def gradient_of(parameter: Tensor) -> Tensor:
    """The gradient that backward has just computed. Raises ValueError if the parameter takes no part in the loss."""
    if parameter.grad is None:
        raise ValueError(
            f"a parameter of shape {tuple(parameter.shape)} has no gradient after backward; ranks average the "
            "gradients of all, so give it a part in the loss, or requires_grad_(False)"
        )
    return parameter.grad


def fill_buckets(parameters: list[Tensor], bucket_bytes: int) -> list[list[Tensor]]:
    """Divide the parameters, in order, into buckets of at most `bucket_bytes`; a larger parameter gets its own."""
    buckets: list[list[Tensor]] = []
    room = 0
    for parameter in parameters:
        if not buckets or parameter.nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    return buckets


def split_like(vector: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """Views of consecutive parts of the vector, one in the shape of each tensor."""
    parts = torch.split(vector, [one.numel() for one in tensors])
    return [part.view_as(one) for part, one in zip(parts, tensors, strict=True)]
