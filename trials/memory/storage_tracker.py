"""A tracker of storages: how many bytes the tensors made inside hold, now and at every allocation."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.utils._python_dispatch import TorchDispatchMode

Storage = torch.UntypedStorage

CUDA_BLOCK = 512
"""CUDA's caching allocator gives out multiples of this many bytes."""

_IN_PLACE = {
    torch.ops.aten.scatter.src: torch.ops.aten.scatter_.src,
    torch.ops.aten.scatter_add.default: torch.ops.aten.scatter_add_.default,
    torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default,
}
"""Seeing a dispatch mode, the gradients of max, gather and indexing go into a copy of the zeros that they have just
made; without one, as in the trials that are not tracked, they go into the zeros themselves.
"""


class StorageTracker(TorchDispatchMode):
    """A context that counts the storages of one kind of device which operations inside make, until they are freed.

    It works the same on real tensors and on meta tensors, which hold nothing. It sees what goes through PyTorch's
    dispatcher: all of eager PyTorch, backward included, and nothing of what compiled code allocates by itself.
    """

    def __init__(self, device_type: str, *, block: int = 1) -> None:
        """`block` is the number of bytes of which the allocator gives out multiples."""
        super().__init__()
        self.device_type = device_type
        self.block = block
        self.live = 0
        """Bytes held now."""
        self.levels: list[int] = []
        """Bytes held after each operation that allocated."""
        self.on_allocation: Callable[[Storage, int, str], None] | None = None
        """Told of each new storage, its bytes and the operation that made it."""
        self.on_free: Callable[[int], None] | None = None
        """Told the key of each storage that is freed."""
        self.on_operation: Callable[[Any, Sequence[Any], Any], None] | None = None
        """Told of each operation, its arguments and its result, after its storages."""
        self._known: dict[int, tuple[weakref.ref[Storage], int]] = {}
        self._last: int | None = None
        """Key of the storage that was made last."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in _IN_PLACE and self._last == storage_key(args[0]):
            func = _IN_PLACE[func]
        elif func is torch.ops.aten.add.Tensor and _is_accumulation(args):
            func = torch.ops.aten.add_.Tensor
        result = func(*args, **(kwargs or {}))
        before = self.live
        for tensor in tensors_in(result):
            self._see(tensor, func)
        if self.live > before:
            self.levels.append(self.live)
        if self.on_operation:
            self.on_operation(func, args, result)
        return result

    def _see(self, tensor: Tensor, func: Any) -> None:
        if tensor.device.type != self.device_type:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
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
        if self.on_free:
            self.on_free(key)


def _is_accumulation(args: Sequence[Any]) -> bool:
    """Whether autograd adds a gradient to one that it has for the same tensor: where it sees no dispatch mode, in
    place, unless it has gaps or is a view, which keeps its base.
    """
    in_backward = torch._C._current_autograd_node() is not None and not torch.is_grad_enabled()
    held, more = args[:2]
    alike = isinstance(more, Tensor) and (held.shape, held.dtype) == (more.shape, more.dtype)
    return in_backward and alike and is_non_overlapping_and_dense_or_false(held) and not held._is_view()


def storage_key(tensor: Tensor) -> int:
    """What tells the tensor's storage from all others that are alive."""
    key: int = tensor.untyped_storage()._cdata
    return key


def tensors_in(result: Any) -> Iterator[Tensor]:
    """The tensors that an operation returned, lists of them included."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for item in result:
            yield from tensors_in(item)
