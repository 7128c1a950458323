"""The functions that CUDA's autocast casts, as PyTorch's documentation lists them ("CUDA Ops that can autocast")."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

NARROW = (
    *("__matmul__", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "conv1d", "conv2d", "conv3d"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "einsum", "linear", "matmul", "mm", "mv", "prelu"),
    *("multi_dot", "scaled_dot_product_attention", "__rmatmul__"),
)
"""Functions whose arguments become 16-bit."""
WIDE = (
    *("__pow__", "__rdiv__", "__rpow__", "__rtruediv__", "acos", "asin", "binary_cross_entropy_with_logits", "cosh"),
    *("cosine_embedding_loss", "cdist", "cosine_similarity", "cross_entropy", "cumprod", "cumsum", "dist", "erfinv"),
    *("exp", "expm1", "group_norm", "hinge_embedding_loss", "kl_div", "l1_loss", "layer_norm", "log", "log10", "log2"),
    *("log1p", "log_softmax", "margin_ranking_loss", "mse_loss", "nll_loss", "norm", "pdist", "pow"),
    *("prod", "reciprocal", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin"),
    *("softplus", "sum", "renorm", "tan", "triplet_margin_loss"),
)
"""Functions whose arguments become float32."""


def functions_named(names: tuple[str, ...]) -> frozenset[Callable[..., object]]:
    """Return what these names are in PyTorch's functions and in the methods of tensors."""
    places = (torch, functional, Tensor)
    return frozenset(getattr(place, name) for name in names for place in places if hasattr(place, name))
