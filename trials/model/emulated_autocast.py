"""Autocast for tensors on other devices, so that types and memory of a step on a GPU are known without one.

PyTorch has no autocast for meta tensors, and its autocast for the CPU casts fewer functions to float32 than CUDA's.
For example, it does not cast `exp`, so a softmax of separate operations saves other tensors.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lmsweep.trials.machine.torch_private import tree_map_only

WIDE = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh"),
    *("tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm"),
    *("rms_norm", "group_norm", "cosine_similarity", "cosine_embedding_loss", "nll_loss", "nll_loss2d"),
    *("hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss"),
    *("soft_margin_loss", "triplet_margin_loss", "binary_cross_entropy_with_logits", "dist", "cdist", "renorm"),
    *("logsumexp", "poisson_nll_loss"),
)
"""Operators whose arguments become float32 in CUDA's autocast, by their names in PyTorch's ATen/autocast_mode.h."""
WIDE_RESULT = (
    *("prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm"),
    *("linalg_matrix_norm", "sum", "sum.dim_IntList"),
)
"""Operators that compute in float32 unless the caller chooses another type; they cast their argument themselves."""
WIDEST = ("addcdiv", "addcmul", "atan2", "bilinear", "dot", "index_put", "tensordot", "scatter_add")
"""Operators whose arguments take the widest of their types."""


def _functions(operators: Iterable[str]) -> Iterator[Callable[..., Any]]:
    """What Python calls for these operators, as a function or as a method of tensors."""
    for name in {operator.partition(".")[0] for operator in operators}:
        owners = (torch, Tensor, torch.nn.functional)
        yield from (getattr(owner, name) for owner in owners if hasattr(owner, name))


_NARROW = frozenset(_functions(("bmm", "matmul", "mm", "linear", "scaled_dot_product_attention")))
_WIDE = frozenset(_functions((*WIDE, *WIDE_RESULT, "cross_entropy")))


class EmulatedCudaAutocast(TorchFunctionMode):
    """A context in which the models' functions cast their arguments as in `torch.autocast("cuda")`. Only functions
    called from Python and listed above are cast: enough for the models here, not for any model. Autocast's cache of
    cast weights is not emulated: it excludes views, and the transformer's weights are transposed."""

    narrow: frozenset[Callable[..., object]] = _NARROW
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
