"""One rank of a data-parallel trial without the others: a process group that sends nothing, tensors without storage.

PyTorch's `fake` backend returns from every collective at once. `fully_shard`, DTensor, ZeroRedundancyOptimizer and
lmsweep's own variants then run as they do in a trial. DistributedDataParallel does not, since its C++ part reads
values; `TorchBuckets` stands in for it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep, Mesh, compares_users_code
from lmsweep.trials.distributed.parallel.gradient_sync import (
    DEFAULT_BUCKET_BYTES,
    SYNCHRONIZERS,
    Bucket,
    MakeSynchronizer,
    gradient_of,
)
from lmsweep.trials.distributed.ranks.process_group import Synchronizer
from lmsweep.trials.machine.torch_private import (
    assigned_buckets,
    fake_process_group,
    foreach_copy,
    replaced,
    shares_of,
    without_fakes,
)
from lmsweep.trials.memory.storage_tracker import StorageTracker
from lmsweep.trials.prediction.without_device.allocation_trace import Recorder
from lmsweep.trials.prediction.without_device.fake_device import (
    Fakes,
    UnpredictableError,
    eager_on_fakes,
    fake_device,
    fake_math_mode,
)
from lmsweep.trials.spec.config import TrialConfig

FIRST_BUCKET_BYTES = 2**20
"""DistributedDataParallel's first bucket, unless a size is given (`dist._DEFAULT_FIRST_BUCKET_BYTES`)."""


def resizes_noted(tracker: StorageTracker) -> AbstractContextManager[None]:
    """A context in which the tracker sees that storages are resized, which is not an operator."""
    resize = torch.UntypedStorage.resize_

    def noted(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        tracker.resized(storage)
        return result

    return replaced(torch.UntypedStorage, "resize_", noted)


class TorchBuckets(Synchronizer):
    """What DistributedDataParallel allocates: buckets next to the gradients, which are copied into them and back. It
    begins with one bucket. When the second forward begins, it frees that one and makes buckets in the order in which
    the first backward computed the gradients (torch/csrc/distributed/c10d/reducer.cpp)."""

    def __init__(self, model: nn.Module, bucket_bytes: int | None) -> None:
        super().__init__(model)
        self._limits = [bucket_bytes] if bucket_bytes else [FIRST_BUCKET_BYTES, DEFAULT_BUCKET_BYTES]
        self._parameters: list[Tensor] = [one for one in model.parameters() if one.requires_grad]
        self._buckets = [Bucket(self._parameters)]
        self._ready: list[Tensor] = []
        """Parameters in the order of their gradients in the first backward, until the buckets are made of them."""
        self._is_first = True  # until each parameter has had a gradient
        self._synchronizes = True
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._note)
        model.register_forward_pre_hook(self._rebuild)

    def local(self) -> AbstractContextManager[None]:
        return replaced(self, "_synchronizes", False)

    def _note(self, parameter: Tensor) -> None:
        if not self._synchronizes:
            return
        if self._is_first:
            self._ready.append(parameter)
            self._is_first = len(self._ready) < len(self._parameters)
        bucket = next(one for one in self._buckets if any(parameter is its for its in one.parameters))
        bucket.missing -= 1
        if bucket.missing == 0:
            gradients = [gradient_of(one) for one in bucket.parameters]
            foreach_copy(bucket.views, gradients)
            dist.all_reduce(bucket.vector)
            foreach_copy(gradients, bucket.views)
            bucket.missing = len(bucket.parameters)  # for the next backward

    def _rebuild(self, module: nn.Module, inputs: object) -> None:
        if self._is_first or not self._ready:  # too early, or done already
            return
        assigned = assigned_buckets(self._ready, self._limits)
        self._buckets.clear()  # frees the first bucket before the others are made
        self._buckets += [Bucket([self._ready[index] for index in indices]) for indices in assigned]
        self._ready.clear()


class FakeRank(DataParallelStep):
    """The step of the rank that this process is, among ranks that do not exist; not built yet."""

    synchronizers: Mapping[str, MakeSynchronizer] = {**SYNCHRONIZERS, "torch": TorchBuckets}

    def __init__(self, config: TrialConfig, on_layers_sharded: Callable[[], object] = lambda: None) -> None:
        """on_layers_sharded: called with tensor parallelism, once this rank has its shard of each layer."""
        super().__init__(eager_on_fakes(config), fake_math_mode(config))
        self._on_layers_sharded = on_layers_sharded

    def mesh(self) -> Mesh:
        made: Mesh = without_fakes(super().mesh)()
        return made

    def attach(self, mesh: Mesh | None) -> Synchronizer:
        if self.config.tp > 1:
            self._on_layers_sharded()
        return super().attach(mesh)


@contextmanager
def one_rank(config: TrialConfig, rank: int) -> Iterator[tuple[StorageTracker, Fakes]]:
    """A context in which this process is that rank: the tracker of its storages, and the mode in which it runs."""
    if compares_users_code(config):
        raise UnpredictableError("what ranks allocate for an optimizer or a wrapper of your own is not predicted")
    with fake_process_group(rank, config.world_size), fake_device(config) as (tracker, fake), resizes_noted(tracker):
        yield tracker, fake


def divide_stretches(recorder: Recorder) -> None:
    """Divide phases into stretches that visit each layer once (`Stretch` says why). In `init` a new one begins when
    rank 0 broadcasts the weights of the layers that it has built. In the optimizer each `_fused_adamw_` begins one:
    the first updates the weights that are replicated, the second those that are sharded."""

    def operated(name: str) -> None:
        if len(recorder.trace) == 1 and "broadcast" in name:  # the first one, in the first stretch of `init`
            recorder.begin("init")
        elif "_fused_adamw_" in name:
            recorder.begin("optimizer")

    recorder.on_operator = operated


def largest_rank(config: TrialConfig) -> int:
    """Return the rank with the largest shard of the optimizer's state: 0, unless ZeRO-1 makes shards differ."""
    if config.ddp != "zero1":
        return 0
    with one_rank(config, 0) as (_, fake), fake:
        step = FakeRank(config)
        step.build_model()
        optimizer = step.training.optimizer
        assert isinstance(optimizer, ZeroRedundancyOptimizer), "zero1 shards its optimizer"
        shares = shares_of(optimizer)
    sizes = [sum(one.numel() for group in share for one in group["params"]) for share in shares]
    return sizes.index(max(sizes))
