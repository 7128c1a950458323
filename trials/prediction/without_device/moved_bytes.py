"""The bytes that one operator reads and writes, from its arguments and its result."""

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from lmsweep.trials.analytic.rates.operators import Shape
from lmsweep.trials.memory.storage_tracker import storage_key, tensors_in

_WRITES_ONLY = frozenset(
    (
        *("fill_", "zero_", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones"),
        *("new_full", "arange", "uniform_", "normal_", "_foreach_zero_", "scalar_tensor", "eye", "linspace"),
    )
)
"""Operators that read no element of their arguments."""

_ROWS = frozenset(("embedding", "index", "index_select", "gather", "_unsafe_index"))
"""Operators that read as many elements of their first argument as they return."""

_INTO = frozenset(("scatter_", "scatter_add_", "index_put_", "index_add_", "_index_put_impl_", "_unsafe_index_put"))
"""Operators that change as many bytes of their first argument as the largest of the others has."""


class Moved(NamedTuple):
    shapes: tuple[Shape, ...]
    """Shapes of its tensor arguments; lists of tensors are flattened."""
    dtype: str
    bytes: int
    """Read and written."""
    read: tuple[tuple[int, int], ...]
    """Storage and bytes of each argument."""
    wrote: tuple[tuple[int, int], ...]
    """Storage and bytes of each tensor that it writes."""


def moved_bytes(name: str, written: tuple[int, ...], args: Sequence[object], result: object) -> Moved | None:
    """Return what an operator moves; None for a subclass of Tensor. `written`: places of the arguments it writes."""
    shapes: list[Shape] = []
    dtype: torch.dtype | None = None
    sizes: list[int] = []
    """Bytes of each argument."""
    read: dict[int, int] = {}
    wrote: dict[int, int] = {}
    for place, argument in enumerate(args):
        tensors = list(tensors_in(argument))
        size = sum(map(_bytes, tensors))
        sizes.append(size)
        if not tensors:
            continue
        first = tensors[0]
        if _wraps(type(first)):
            return None
        shapes.append(tuple(first.shape) if isinstance(argument, Tensor) else (sum(one.numel() for one in tensors),))
        if dtype is None or not dtype.is_floating_point:  # the first floating-point type, or else the last type
            dtype = first.dtype
        # By storage: an operand that occurs twice, or is changed in place, counts once. A list counts as its first.
        read[storage_key(first)] = size
        if place in written:
            wrote[storage_key(first)] = size
    made = [one for one in tensors_in(result) if one.numel()]
    if made and _wraps(type(made[0])):
        return None
    for one in made:
        wrote.setdefault(storage_key(one), _bytes(one))
    if dtype is None:
        dtype = made[0].dtype if made else torch.float32
    total, type_name = _total(name, sizes, read, wrote), str(dtype).removeprefix("torch.")
    return Moved(tuple(shapes), type_name, total, tuple(read.items()), tuple(wrote.items()))


def _total(name: str, sizes: list[int], read: dict[int, int], wrote: dict[int, int]) -> int:
    """The bytes read and written, where an operator does not read each argument whole and once."""
    written = sum(wrote.values())
    if name in _WRITES_ONLY or name == "nll_loss_backward":
        return written
    if name in _ROWS:
        return 2 * written + sum(sizes[1:])  # what it returns is read as well; the others are indices
    if name in _INTO:
        values = max(sizes[1:], default=0)
        # `_add_` changes each element once, even if several rows are added to it: as the workload `operators` counts.
        changed = min(values, sizes[0]) if "_add_" in name else values
        return values + 2 * changed  # which are read and written
    if name in ("copy_", "_foreach_copy_"):
        return sizes[0] + sizes[1]
    if name == "embedding_dense_backward":
        return written + 2 * sizes[0] + sum(sizes[1:])  # zeros; gradients, as read and as written to rows; indices
    if name in ("slice_backward", "select_backward"):
        return written + 2 * sizes[0]  # zeros; the gradient, as read and as written to its part
    if name == "nll_loss_forward":
        return 33 * sizes[1] // 8  # for each target (8 bytes) about the sector of its row (32 bytes) that is read
    if name.startswith("_fused_"):  # weights, gradients, states: all but the gradients are also written
        return 2 * sum(sizes) - sizes[1]
    return sum(read.values()) + written


def _bytes(tensor: Tensor) -> int:
    """The bytes of a tensor in memory; an expanded tensor, which has strides of 0, has those of what it expands."""
    if not tensor.numel():
        return 0
    return tensor.element_size() * prod(n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)


@cache
def _wraps(kind: type[Tensor]) -> bool:
    return kind is not Tensor and hasattr(kind, "__tensor_flatten__")
