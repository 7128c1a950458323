"""How ranks make one gradient of theirs: the variants of data-parallel training that are compared.

Each leaves the mean over the ranks in every parameter's `grad`. To add one: a class, and a line in SYNCHRONIZERS.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector

from lmsweep.trials.distributed.process_group import Mean
from lmsweep.trials.spec.config import Ddp

DEFAULT_BUCKET_BYTES = 25 * 2**20
"""DistributedDataParallel's."""


class Synchronizer(Protocol):
    @property
    def model(self) -> nn.Module:
        """What forward calls."""

    def local(self) -> AbstractContextManager[None]:
        """Inside, each rank keeps its own gradients: the step without synchronisation."""

    def finish(self) -> None:
        """Comes after backward: does, or waits for, what is not done yet."""


class _OwnSynchronizer:
    """What the variants have in common that are written out here."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.parameters: list[Tensor] = list(model.parameters())
        self.mean = Mean()
        self.synchronizes = True

    @contextmanager
    def local(self) -> Iterator[None]:
        self.synchronizes = False
        try:
            yield
        finally:
            self.synchronizes = True

    def gradients(self) -> list[Tensor]:
        return [gradient_of(parameter) for parameter in self.parameters]


class Naive(_OwnSynchronizer):
    """One all-reduce per parameter, after backward."""

    def finish(self) -> None:
        if self.synchronizes:
            gradients = self.gradients()
            for gradient in gradients:
                self.mean.start(gradient).wait()
            self.mean.finish(gradients)


class Flat(_OwnSynchronizer):
    """One all-reduce of all gradients, copied into one vector, after backward."""

    def finish(self) -> None:
        if self.synchronizes:
            vector = parameters_to_vector(self.gradients())
            self.mean.start(vector).wait()
            self.mean.finish([vector])
            _point_gradients(self.parameters, vector)


class Overlap(_OwnSynchronizer):
    """One all-reduce per parameter, started as soon as backward has its gradient."""

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


class Bucket:
    """Parameters whose gradients are sent together, and the memory that they are sent from and end up in."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        first = parameters[0]
        self.vector = torch.zeros(sum(one.numel() for one in parameters), dtype=first.dtype, device=first.device)
        self.views = _views(self.vector, parameters)
        self.missing = len(parameters)
        """Parameters whose gradients are not there yet."""
        self.work: dist.Work | None = None

    def fill(self) -> None:
        """Moves the gradients into the bucket: they are copied once, and not back."""
        torch._foreach_copy_(self.views, [gradient_of(parameter) for parameter in self.parameters])
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view


class Bucketed(_OwnSynchronizer):
    """One all-reduce per bucket, started as soon as backward has the last gradient that belongs in it.

    Buckets are filled from the last layer backwards, the order in which gradients come; one is full when it holds
    `bucket_bytes` or the next gradient would not fit.
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
                assert bucket.work is not None, "backward has given every parameter its gradient"
                bucket.work.wait()
                bucket.work, bucket.missing = None, len(bucket.parameters)
            self.mean.finish([bucket.vector for bucket in self.buckets])


class TorchDdp:
    """PyTorch's DistributedDataParallel. Its backward also waits for the all-reduces, so `finish` has nothing to do."""

    def __init__(self, model: nn.Module, bucket_bytes: int | None) -> None:
        arguments = inspect.signature(DistributedDataParallel).parameters
        # The model's only buffers are constants; the argument that spares them a broadcast has two names.
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in arguments else "broadcast_buffers"
        size = None if bucket_bytes is None else bucket_bytes / 2**20
        options: dict[str, Any] = {buffers: False, "bucket_cap_mb": size}
        self.model = DistributedDataParallel(model, **options)

    def local(self) -> AbstractContextManager[None]:
        return self.model.no_sync()

    def finish(self) -> None:
        pass


SYNCHRONIZERS: dict[Ddp, Callable[[nn.Module, int | None], Synchronizer]] = {
    "naive": lambda model, _: Naive(model),
    "flat": lambda model, _: Flat(model),
    "overlap": lambda model, _: Overlap(model),
    "bucketed": Bucketed,
    "torch": TorchDdp,
    "zero1": Bucketed,
}
"""Variant -> what attaches it to a model, with so many bytes in a bucket if it has any (None for the default)."""


def gradient_of(parameter: Tensor) -> Tensor:
    """The gradient that backward has just given the parameter."""
    assert parameter.grad is not None, "backward gives every parameter a gradient"
    return parameter.grad


def fill_buckets(parameters: list[Tensor], bucket_bytes: int) -> list[list[Tensor]]:
    """The parameters in the same order, in buckets of at most this size; a larger parameter has one for itself."""
    buckets: list[list[Tensor]] = []
    room = 0
    for parameter in parameters:
        if not buckets or parameter.nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    return buckets


def _views(vector: Tensor, like: list[Tensor]) -> list[Tensor]:
    parts = vector.split([one.numel() for one in like])
    return [part.view_as(one) for part, one in zip(parts, like, strict=True)]


def _point_gradients(parameters: list[Tensor], vector: Tensor) -> None:
    for parameter, view in zip(parameters, _views(vector, parameters), strict=True):
        parameter.grad = view
