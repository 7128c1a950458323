"""How ranks average their gradients: the variants of data-parallel training that are compared.

Each leaves the mean over the ranks in every parameter's `grad`. To add one, write a class and add it to SYNCHRONIZERS.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector

from lmsweep.trials.distributed.parallel.fully_sharded import part_of
from lmsweep.trials.distributed.parallel.gradient_buckets import Bucket, fill_buckets, gradient_of, split_like
from lmsweep.trials.distributed.ranks.process_group import Mean

DEFAULT_BUCKET_BYTES = 25 * 2**20
"""The default of DistributedDataParallel."""


class Synchronizer(Protocol):
    """A way to average gradients over the ranks, attached to one model."""

    @property
    def model(self) -> nn.Module:
        """The module to call in forward."""

    def local(self) -> AbstractContextManager[None]:
        """A context without synchronization: each rank keeps its own gradients."""

    def hold(self) -> AbstractContextManager[None]:
        """A context for the micro-batches before the last, whose gradients are not synchronized yet."""

    def finish(self) -> None:
        """Complete the synchronization after backward: start what has not started, wait for what has."""


class _OwnSynchronizer:
    """What the variants implemented here have in common."""

    def __init__(self, model: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        """`group`: the ranks that average their gradients; None for all."""
        self.model = model
        self.parameters: list[Tensor] = [one for one in model.parameters() if one.requires_grad]
        self.mean = Mean(group)
        self.synchronizes = True

    @contextmanager
    def local(self) -> Iterator[None]:
        before, self.synchronizes = self.synchronizes, False
        try:
            yield
        finally:
            self.synchronizes = before

    def hold(self) -> AbstractContextManager[None]:
        return self.local()

    def gradients(self) -> list[Tensor]:
        return [part_of(gradient_of(parameter)) for parameter in self.parameters]


class NoSynchronizer:
    """None: each rank keeps its own gradients."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def local(self) -> AbstractContextManager[None]:
        return nullcontext()

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()

    def finish(self) -> None:
        """There is nothing to complete."""


class Naive(_OwnSynchronizer):
    """One all-reduce per parameter, after backward."""

    def finish(self) -> None:
        if self.synchronizes:
            gradients = self.gradients()
            for gradient in gradients:
                self.mean.start(gradient).wait()
            self.mean.finish(gradients)


class Flat(_OwnSynchronizer):
    """One all-reduce of all gradients, concatenated into one vector, after backward."""

    def finish(self) -> None:
        if self.synchronizes:
            vector = parameters_to_vector(self.gradients())
            self.mean.start(vector).wait()
            self.mean.finish([vector])
            for parameter, view in zip(self.parameters, split_like(vector, self.parameters), strict=True):
                parameter.grad = view


class Overlap(_OwnSynchronizer):
    """One all-reduce per parameter, started as soon as backward has computed its gradient."""

    def __init__(self, model: nn.Module) -> None:
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


class Bucketed(_OwnSynchronizer):
    """One all-reduce per bucket, started as soon as backward has computed the last gradient in it.

    Parameters are assigned to buckets from the last layer to the first, the order in which backward computes their
    gradients. A bucket is full when the next gradient would make it larger than `bucket_bytes`.
    """

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
                assert bucket.work is not None, "backward gives every parameter a gradient"
                bucket.work.wait()
                bucket.work, bucket.missing = None, len(bucket.parameters)
            self.mean.finish([bucket.vector for bucket in self.buckets])


class TorchDdp:
    """PyTorch's DistributedDataParallel. Its backward waits for the all-reduces, so `finish` does nothing."""

    def __init__(self, model: nn.Module, bucket_bytes: int | None) -> None:
        arguments = inspect.signature(DistributedDataParallel).parameters
        # The model's only buffers are constants, which need no broadcast. The argument's name depends on the version.
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in arguments else "broadcast_buffers"
        size = None if bucket_bytes is None else bucket_bytes / 2**20
        options: dict[str, Any] = {buffers: False, "bucket_cap_mb": size}
        self.model = DistributedDataParallel(model, **options)

    def local(self) -> AbstractContextManager[None]:
        return self.model.no_sync()

    def hold(self) -> AbstractContextManager[None]:
        return self.model.no_sync()

    def finish(self) -> None:
        pass


SYNCHRONIZERS: dict[str, Callable[[nn.Module, int | None], Synchronizer]] = {
    "naive": lambda model, _: Naive(model),
    "flat": lambda model, _: Flat(model),
    "overlap": lambda model, _: Overlap(model),
    "bucketed": Bucketed,
    "torch": TorchDdp,
    "zero1": Bucketed,
}
"""Variant -> function of model and bucket size in bytes (None for the default) that attaches it to the model."""
