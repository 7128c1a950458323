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
from lmsweep.trials.memory.storage_tracker import tensors_in

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
"""Operators whose arguments take the widest of their types: float32 if any of them is."""


@contextmanager
def cuda_autocast() -> Iterator[None]:
    """A context in which `torch.autocast("cpu")` has the rules of CUDA."""
    rules = ((WIDE, _in_float32), (WIDE_RESULT, _to_float32), (WIDEST, _in_float32_if_any_is))
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
            return operator(*_as_float32(args), **_as_float32(kwargs))

    return kernel


def _to_float32(operator: OpOverload) -> Callable[..., Any]:
    names = positional_names(operator)

    def kernel(x: Any, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names[1:], args, strict=False)) | kwargs  # softmax takes `dtype` by position, sum by name
        if _is_eligible(x) and given.get("dtype") is None:
            given["dtype"] = torch.float32
        with below_autocast_on_cpu():
            return operator(x, **given)

    return kernel


def _in_float32_if_any_is(operator: OpOverload) -> Callable[..., Any]:
    in_float32 = _in_float32(operator)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if any(x.dtype == torch.float32 for x in tensors_in(args)):
            return in_float32(*args, **kwargs)
        with below_autocast_on_cpu():
            return operator(*args, **kwargs)

    return kernel


def _as_float32(arguments: Any) -> Any:
    """Return the arguments with every eligible tensor cast to float32."""
    return tree_map_only(Tensor, lambda x: x.float() if _is_eligible(x) else x, arguments)


def _is_eligible(x: object) -> bool:
    """Whether autocast casts this argument: a tensor of floating-point numbers, but not of float64."""
    return isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
