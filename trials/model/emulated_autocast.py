"""Autocast for tensors on other devices, so that types and memory of a step on a GPU are known without one.

PyTorch has no autocast for meta tensors, and its autocast for the CPU casts fewer functions to float32 than CUDA's.
For example, it does not cast `exp`, so a softmax of separate operations saves other tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

_NARROW: set[Callable[..., Any]] = {
    *(torch.bmm, torch.matmul, torch.mm, Tensor.bmm, Tensor.matmul, Tensor.mm),
    torch.nn.functional.linear,
    torch.nn.functional.scaled_dot_product_attention,
}
_WIDE: frozenset[Callable[..., Any]] = frozenset(
    {
        *(torch.exp, torch.log, torch.pow, torch.rsqrt, torch.softmax, torch.sum),
        torch.nn.functional.cross_entropy,
        torch.nn.functional.layer_norm,
        *(Tensor.exp, Tensor.log, Tensor.pow, Tensor.rsqrt, Tensor.sum),
    }
)


class EmulatedCudaAutocast(TorchFunctionMode):
    """A context in which the models' functions cast their arguments as in `torch.autocast("cuda")`. Only functions
    called from Python and listed above are cast: enough for the models here, not for any model. Autocast's cache of
    cast weights is not emulated: it excludes views, and the transformer's weights are transposed."""

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
