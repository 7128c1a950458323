"""Autocast for tensors on other devices, so that the memory and types of a step on a GPU are known without one.

PyTorch has no autocast for meta tensors, and its autocast for the CPU casts fewer functions to float32 than CUDA's.
For example, it does not cast `exp`, so a softmax of separate operations saves other tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from lmsweep.trials.model.cast_lists import NARROW, WIDE, functions_named

_NARROW: set[Callable[..., Any]] = {
    torch.bmm,
    torch.matmul,
    torch.mm,
    Tensor.bmm,
    Tensor.matmul,
    Tensor.mm,
    torch.nn.functional.linear,
    torch.nn.functional.scaled_dot_product_attention,
}
_WIDE: frozenset[Callable[..., Any]] = frozenset(
    {
        torch.exp,
        torch.log,
        torch.pow,
        torch.rsqrt,
        torch.softmax,
        torch.sum,
        torch.nn.functional.cross_entropy,
        torch.nn.functional.layer_norm,
        Tensor.exp,
        Tensor.log,
        Tensor.pow,
        Tensor.rsqrt,
        Tensor.sum,
    }
)


class EmulatedCudaAutocast(TorchFunctionMode):
    """A context in which the models' functions cast their arguments as in `torch.autocast("cuda")`.

    Matrix products run in `dtype`, exponentials and the like in float32, all others in the type of their arguments. As
    in autocast, autograd sees the casts as operations. Only functions called from Python and listed above are cast:
    enough for the models here, not for any model. Autocast's cache of cast weights is not emulated: it excludes views,
    and the transformer's weights reach their products transposed.
    """

    narrow: frozenset[Callable[..., object]] = frozenset(_NARROW)
    wide: frozenset[Callable[..., object]] = _WIDE

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in self.narrow or func in self.wide:
            dtype = self.dtype if func in self.narrow else torch.float32
            # Last argument first: the order in which x86 compilers evaluate arguments in PyTorch's C++ code.
            kwargs = tree_map_only(Tensor, lambda x: self.cast(x, dtype), kwargs)
            args = tree_map_only(Tensor, lambda x: self.cast(x, dtype), args[::-1])[::-1]
        return func(*args, **kwargs)

    def cast(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the tensor in this type; autocast leaves integers and float64 as they are."""
        return x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x


class EmulatedCpuAutocast(EmulatedCudaAutocast):
    """The same for `torch.autocast("cpu")`, which casts only matrix products among the models' functions."""

    wide = frozenset()


class CompleteCudaAutocast(EmulatedCudaAutocast):
    """The same for any model: all functions that autocast casts, and its cache of cast weights."""

    narrow = functions_named(NARROW)
    wide = functions_named(WIDE)

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self._cast_weights: dict[int, tuple[Tensor, Tensor]] = {}
        """Number of a weight -> the weight and its cast, which live until the context ends."""

    def __exit__(self, *error: object) -> None:
        self._cast_weights.clear()
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # PyTorch does not annotate it

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if kwargs and kwargs.get("dtype") is not None:
            return func(*args, **kwargs)  # the caller chose a type
        return super().__torch_function__(func, types, args, kwargs)

    def cast(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        is_weight = x.dtype == torch.float32 and x.requires_grad and x.is_leaf and not x._is_view()
        if not is_weight or dtype == torch.float32:
            return super().cast(x, dtype)
        if id(x) not in self._cast_weights:
            self._cast_weights[id(x)] = x, x.to(dtype)
        return self._cast_weights[id(x)][1]
