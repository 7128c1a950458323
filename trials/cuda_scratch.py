"""What CUDA kernels take from the allocator while they run, besides their results: no other device's do."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def scratch_bytes(func: Any, result: Any) -> int:
    """Bytes that an operation with this result takes until it returns."""
    count = _SCRATCH.get(func)
    return count(result) if count else 0


def flex_scratch_bytes(func: Any, result: Any) -> int:
    """The same where another fused kernel stands for FlexAttention: a number per row, in forward and in backward."""
    return _number_per_row(result) if func in _FUSED else 0


def _softmax_backward(result: Tensor) -> int:
    """The product of output and gradient, made first (aten/src/ATen/native/cuda/SoftMax.cu)."""
    return result.numel() * result.element_size()


def _flash_backward(result: tuple[Tensor, ...]) -> int:
    """The queries' gradients and a number per row in float32, sequences and heads rounded up (mha_bwd in
    aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp).
    """
    batch, heads, context, d_head = result[0].shape
    width = _round_up(d_head, 32) if d_head <= 192 else 256
    return 4 * batch * heads * _round_up(context, 128) * (width + 1)


def _efficient_backward(result: tuple[Tensor, ...]) -> int:
    """A number per row in float32 and, for 16 bits, the queries' gradients in float32 in blocks of 64 columns (as was
    measured on an H200).
    """
    batch, heads, context, d_head = result[0].shape
    width = 0 if result[0].dtype == torch.float32 else _round_up(d_head, 64)
    return 4 * batch * heads * context * (width + 1)


def _number_per_row(result: tuple[Tensor, ...]) -> int:
    return 4 * result[0].shape[:-1].numel()


_FUSED = (
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_backward.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_efficient_attention_backward.default,
)
_SCRATCH: dict[Any, Callable[[Any], int]] = {
    aten._softmax_backward_data.default: _softmax_backward,
    aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
}


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
