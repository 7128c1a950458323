"""One rank of a data-parallel trial without the others: a process group that sends nothing, tensors without storage.

PyTorch's `fake` backend returns from every collective at once. `fully_shard`, DTensor, ZeroRedundancyOptimizer and
lmsweep's own variants then run as they do in a trial. DistributedDataParallel does not, since its C++ part reads
values; `TorchBuckets` stands in for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _compute_bucket_assignment_by_size
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from lmsweep.trials.distributed import data_parallel_step, mesh
from lmsweep.trials.distributed.gradient_sync import DEFAULT_BUCKET_BYTES, SYNCHRONIZERS
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
    make_mesh, make_part = mesh.mesh_of, DeviceMesh.__init__

    def mesh_of(*given: Any) -> Any:
        with unset_fake_temporarily():
            return make_mesh(*given)

    def init(made: DeviceMesh, *given: Any, **named: Any) -> None:
        with unset_fake_temporarily():
            make_part(made, *given, **named)

    with patch.object(data_parallel_step, "mesh_of", mesh_of), patch.object(DeviceMesh, "__init__", init):
        yield


class TorchBuckets:
    """What DistributedDataParallel allocates: buckets next to the gradients, which are copied into them and back.

    It begins with one bucket. When the second forward begins, it frees that one and makes buckets in the order in which
    the first backward computed the gradients (torch/csrc/distributed/c10d/reducer.cpp).
    """

    def __init__(self, model: nn.Module, bucket_bytes: int | None) -> None:
        self.model = model
        self._limits = [bucket_bytes] if bucket_bytes else [FIRST_BUCKET_BYTES, DEFAULT_BUCKET_BYTES]
        parameters: list[Tensor] = [one for one in model.parameters() if one.requires_grad]
        self._buckets = [_vector(parameters)]
        self._ready: list[Tensor] = []
        self._missing = len(parameters)
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._ready_once)
        model.register_forward_pre_hook(self._rebuild)

    def local(self) -> Any:
        """Nothing is sent anyway."""
        return nullcontext()

    def hold(self) -> Any:
        """The buckets exist in each micro-batch."""
        return nullcontext()

    def finish(self) -> None:
        """Backward has waited."""

    def _ready_once(self, parameter: Tensor) -> None:
        if self._missing:
            self._missing -= 1
            self._ready.append(parameter)

    def _rebuild(self, module: nn.Module, inputs: object) -> None:
        if self._missing or not self._ready:
            return
        assigned, _ = _compute_bucket_assignment_by_size(self._ready, self._limits, [False] * len(self._ready))
        self._buckets.clear()
        # Reducer fills them in the order in which gradients come, and so makes them.
        self._buckets += [_vector([self._ready[index] for index in indices]) for indices in assigned]
        self._ready.clear()


def _vector(parameters: list[Tensor]) -> Tensor:
    first = parameters[0]
    return torch.empty(sum(one.numel() for one in parameters), dtype=first.dtype, device=first.device)
