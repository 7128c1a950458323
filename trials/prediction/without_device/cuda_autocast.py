"""The rules of CUDA's autocast for tensors on the CPU, whose own autocast casts fewer operators to float32.

For example, the CPU's does not cast `exp`, so a softmax of separate operations saves other tensors than on CUDA.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import (
    OpOverload,
    below_autocast_on_cpu,
    kernels_replaced,
    positional_names,
    tree_map_only,
)

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


@contextmanager
def cuda_autocast() -> Iterator[None]:
    """A context in which `torch.autocast("cpu")` has the rules of CUDA."""
    rules = ((WIDE, _in_float32), (WIDE_RESULT, _to_float32), (WIDEST, _in_the_widest))
    kernels = {name: kernel(_operator(name)) for names, kernel in rules for name in names}
    with kernels_replaced(kernels, "AutocastCPU"):
        yield


def _operator(name: str) -> OpOverload:
    packet, _, overload = name.partition(".")
    operator: OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return operator


def _in_float32(operator: OpOverload) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with below_autocast_on_cpu():
            return operator(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))

    return kernel


def _to_float32(operator: OpOverload) -> Callable[..., Any]:
    names = positional_names(operator)
    place = names.index("dtype") if "dtype" in names else None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if _is_eligible(args[0]):  # then set `dtype`, unless the caller did: by name or, if it has a place, by place
            if place is None:
                kwargs["dtype"] = kwargs.get("dtype") or torch.float32
            elif len(args) <= place or args[place] is None:
                args = (*args[:place], *[None] * (place - len(args)), torch.float32)
        with below_autocast_on_cpu():
            return operator(*args, **kwargs)

    return kernel


def _in_the_widest(operator: OpOverload) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtypes: list[torch.dtype] = []
        tree_map_only(Tensor, lambda x: dtypes.append(x.dtype) if _is_eligible(x) else None, (args, kwargs))
        with below_autocast_on_cpu():
            if torch.float32 not in dtypes:
                return operator(*args, **kwargs)
            return operator(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))

    return kernel


def _cast(arguments: Any, dtype: torch.dtype) -> Any:
    return tree_map_only(Tensor, lambda x: x.to(dtype) if _is_eligible(x) else x, arguments)


def _is_eligible(x: object) -> bool:
    """Whether autocast casts this argument: a tensor of floating-point numbers, but not of float64."""
    return isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
