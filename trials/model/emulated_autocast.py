"""CUDA's autocast for tensors that are on no GPU, so that what a GPU would keep in memory can be known without one.

PyTorch has no autocast for meta tensors, and its autocast for the CPU casts fewer functions to float32 than CUDA's
(not `exp`, so that a softmax written out keeps other tensors).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

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
    """A context in which the functions of our models cast their arguments as `torch.autocast("cuda")` would.

    Products take `dtype`, exponentials and the like take float32, the rest take what they are given. The casts are
    operations that autograd sees, as autocast's are. Only functions called from Python are seen: enough for the models,
    whose few functions are in the two lists, not for any model. Autocast's cache of cast weights is left out: it takes
    no views, and the transformer's weights reach their products transposed.
    """

    wide = _WIDE

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
        if func in _NARROW or func in self.wide:
            dtype = self.dtype if func in _NARROW else torch.float32
            # The last argument first, as compilers for x86 evaluate a call's arguments.
            kwargs = tree_map_only(Tensor, lambda x: _cast(x, dtype), kwargs)
            args = tree_map_only(Tensor, lambda x: _cast(x, dtype), args[::-1])[::-1]
        return func(*args, **kwargs)


class EmulatedCpuAutocast(EmulatedCudaAutocast):
    """The same for `torch.autocast("cpu")`, which of the model's functions casts only the products."""

    wide = frozenset()


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    # As autocast does, leave integers and float64 alone.
    return x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x
