"""One rank of a data-parallel trial without the others: a process group that sends nothing, tensors without storage.

PyTorch's `fake` backend returns from every collective at once. `fully_shard`, DTensor, ZeroRedundancyOptimizer and
lmsweep's own variants then run as they do in a trial. DistributedDataParallel does not, since its C++ part reads
values; `TorchBuckets` stands in for it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _compute_bucket_assignment_by_size
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._fully_shard import _fully_shard
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore

from lmsweep.trials.distributed.parallel import data_parallel_step
from lmsweep.trials.distributed.parallel.gradient_buckets import Bucket
from lmsweep.trials.distributed.parallel.gradient_sync import DEFAULT_BUCKET_BYTES, SYNCHRONIZERS
from lmsweep.trials.memory.storage_tracker import StorageTracker

FIRST_BUCKET_BYTES = 2**20
"""DistributedDataParallel's first bucket, unless a size is given (`dist._DEFAULT_FIRST_BUCKET_BYTES`)."""


@contextmanager
def fake_rank(rank: int, world_size: int) -> Iterator[None]:
    """A context in which this process is that rank of a group whose other ranks do not exist."""
    assert not dist.is_initialized(), "predictions do not run in ranks"
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        with _real_meshes(), patch.dict(SYNCHRONIZERS, torch=TorchBuckets):
            yield
    finally:
        dist.destroy_process_group()
        # What DTensor remembers names groups that no longer exist, and a later mesh of the same ranks would find it.
        _clear_sharding_prop_cache()


@contextmanager
def resizes_noted(tracker: StorageTracker) -> Iterator[None]:
    """A context in which the tracker sees that storages are resized, which is not an operator."""
    resize = torch.UntypedStorage.resize_

    def noted(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        tracker.resized(storage)
        return result

    with patch.object(torch.UntypedStorage, "resize_", noted):
        yield


@contextmanager
def _real_meshes() -> Iterator[None]:
    """A context in which meshes are made of real numbers: their ranks are read."""
    makers = (
        (data_parallel_step, "mesh_of"),
        (_fully_shard, "_get_post_forward_mesh_info"),  # the smaller mesh of `reshard: 2`
        (DeviceMesh, "__init__"),
    )
    with ExitStack() as stack:
        for owner, name in makers:
            stack.enter_context(patch.object(owner, name, _without_fakes(getattr(owner, name))))
        yield


def _without_fakes(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*given: Any, **named: Any) -> Any:
        with unset_fake_temporarily():
            return make(*given, **named)

    return made


class TorchBuckets:
    """What DistributedDataParallel allocates: buckets next to the gradients, which are copied into them and back.

    It begins with one bucket. When the second forward begins, it frees that one and makes buckets in the order in which
    the first backward computed the gradients (torch/csrc/distributed/c10d/reducer.cpp).
    """

    def __init__(self, model: nn.Module, bucket_bytes: int | None) -> None:
        self.model = model
        self._limits = [bucket_bytes] if bucket_bytes else [FIRST_BUCKET_BYTES, DEFAULT_BUCKET_BYTES]
        self._parameters: list[Tensor] = [one for one in model.parameters() if one.requires_grad]
        self._buckets = [Bucket(self._parameters)]
        self._ready: list[Tensor] = []
        """Parameters in the order of their gradients in the first backward, until the buckets are made of them."""
        self._is_first = self._synchronizes = True
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._note)
        model.register_forward_pre_hook(self._rebuild)

    def local(self) -> AbstractContextManager[None]:
        """A context in which nothing is sent."""
        return self.hold()

    @contextmanager
    def hold(self) -> Iterator[None]:
        before, self._synchronizes = self._synchronizes, False
        try:
            yield
        finally:
            self._synchronizes = before

    def finish(self) -> None:
        """Backward has waited."""

    def _note(self, parameter: Tensor) -> None:
        if not self._synchronizes:
            return
        if self._is_first:
            self._ready.append(parameter)
            self._is_first = len(self._ready) < len(self._parameters)
        bucket = next(one for one in self._buckets if any(parameter is its for its in one.parameters))
        bucket.missing -= 1
        if bucket.missing == 0:
            dist.all_reduce(bucket.vector)
            bucket.missing = len(bucket.parameters)

    def _rebuild(self, module: nn.Module, inputs: object) -> None:
        if self._is_first or not self._ready:
            return
        assigned, _ = _compute_bucket_assignment_by_size(self._ready, self._limits, [False] * len(self._ready))
        self._buckets.clear()
        self._buckets += [Bucket([self._ready[index] for index in indices]) for indices in assigned]
        self._ready.clear()
