"""Counts the bytes of all tensor storages that are created inside a context, at every allocation and free."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import OpOverload, TorchDispatchMode, backward_node, is_dense, storage_key_of

Storage = torch.UntypedStorage

FAKE = "fake"
"""The device type for tensors without storage, whatever device they are on."""

CUDA_BLOCK = 512
"""CUDA's caching allocator hands out multiples of these bytes."""

_DEVICE = torch.ops.prim.device.default

_IN_PLACE = {
    torch.ops.aten.scatter.src: torch.ops.aten.scatter_.src,
    torch.ops.aten.scatter_add.default: torch.ops.aten.scatter_add_.default,
    torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default,
}
"""Operator -> its in-place variant. The gradients of max, gather and indexing create zeros and write into them; under a
dispatch mode, they write into a copy instead. `without_mode` restores the in-place variant."""


class StorageTracker(TorchDispatchMode):
    """A context that tracks the storages that operators create on one device type, until they are freed. It works on
    real and on fake tensors, and sees all that goes through PyTorch's dispatcher: eager PyTorch including backward, but
    not the allocations of compiled code."""

    def __init__(self, device_type: str, *, block: int = 1) -> None:
        """The allocator hands out multiples of `block` bytes."""
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch does not annotate it
        self.device_type = device_type
        self.block = block
        self.live = 0
        """Bytes held now."""
        self.levels: list[int] = []
        """Bytes held after each operator that allocated."""
        self.on_allocation: Callable[[Storage, int, str], None] | None = None
        """Called with each new storage, its bytes and the name of the operator that created it."""
        self.on_free: Callable[[int], object] | None = None
        """Called with the key of each storage that is freed."""
        self.on_operation: Callable[[Any, Sequence[Any], Any], None] | None = None
        """Called with PyTorch's operator, its arguments and its result, after `on_allocation`."""
        self._known: dict[int, tuple[weakref.ref[Storage], int]] = {}
        self._emptied: set[int] = set()
        """Keys of live storages that were freed by a resize to no bytes."""
        self._last: int | None = None
        """Key of the latest storage."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is _DEVICE and (device := getattr(args[0], "fake_device", None)):
            return device  # of all that goes through the mode, two thirds ask a fake tensor for its device
        func = without_mode(func, args, self._last)
        result = func(*args, **(kwargs or {}))
        before = self.live
        for tensor in tensors_in(result):
            self.see(tensor, func)
        if self.live > before:
            self.levels.append(self.live)
        if self.on_operation:
            self.on_operation(func, args, result)
        return result

    def resized(self, storage: Storage) -> None:
        """Note a storage's new size, which no operator reports: fully_shard frees storages this way."""
        key = storage_key_of(storage)
        if key not in self._known:
            return
        held, before = self._known[key]
        size = -(-storage.nbytes() // self.block) * self.block
        self._known[key] = held, size
        self.live += size - before
        if size > before:
            self.levels.append(self.live)
        if before and self.on_free:
            self.on_free(key)
        if size == 0:
            self._emptied.add(key)
            return
        self._emptied.discard(key)
        if self.on_allocation:
            self.on_allocation(storage, size, "resize")

    def see(self, tensor: Tensor, func: object) -> None:
        """Track the storage of a tensor, if it is on the device and not known. func: what made it."""
        tensor = with_storage(tensor)
        # The device of a fake tensor is an operator, which would go through every mode.
        fake: torch.device | None = getattr(tensor, "fake_device", None)
        is_there = fake is not None if self.device_type == FAKE else (fake or tensor.device).type == self.device_type
        if not is_there:
            return
        storage = tensor.untyped_storage()
        key = storage_key_of(storage)
        if key in self._known:
            return
        size = -(-storage.nbytes() // self.block) * self.block
        self._last = key
        self._known[key] = weakref.ref(storage, lambda _: self._freed(key)), size
        self.live += size
        if self.on_allocation:
            self.on_allocation(storage, size, str(func))

    def _freed(self, key: int) -> None:
        self.live -= self._known.pop(key)[1]
        if key in self._emptied:
            self._emptied.remove(key)
        elif self.on_free:
            self.on_free(key)


def with_storage(tensor: Tensor) -> Tensor:
    """Return the tensor that has the storage: this rank's part of a DTensor, or the tensor in a collective's result."""
    inner = getattr(tensor, "_local_tensor", getattr(tensor, "elem", None))
    return tensor if inner is None else with_storage(inner)


def without_mode(func: OpOverload, args: Sequence[object], last: int | None) -> OpOverload:
    """Return the operator that runs without a mode. last: key of the latest storage; only new zeros change in place."""
    if func in _IN_PLACE and isinstance(args[0], Tensor) and last == storage_key(args[0]):
        return _IN_PLACE[func]
    return torch.ops.aten.add_.Tensor if func is torch.ops.aten.add.Tensor and _is_accumulation(args) else func


def _is_accumulation(args: Sequence[object]) -> bool:
    """Whether autograd adds two gradients of one tensor. Without a dispatch mode it adds in place, unless the first
    gradient is a view or not dense: `is_dense` excludes both."""
    held, more = args[:2]
    # With gradients enabled, it is not autograd that adds: a checkpoint computes forward again.
    is_backward = backward_node() is not None and not torch.is_grad_enabled()
    if not (is_backward and isinstance(held, Tensor) and isinstance(more, Tensor)):
        return False
    return (held.shape, held.dtype) == (more.shape, more.dtype) and is_dense(held)


def storage_key(tensor: Tensor) -> int:
    """A number that identifies the tensor's storage among all live ones."""
    return storage_key_of(tensor.untyped_storage())


def tensors_in(result: object) -> Iterator[Tensor]:
    """The tensors in what a PyTorch operator returned: a tensor, or nested tuples and lists."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for item in result:
            yield from tensors_in(item)
