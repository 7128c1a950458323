"""What CUDA kernels take from the allocator while they run, besides their results: no other device's do."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


MULTIPROCESSORS = 132
"""Of an H100 or H200: by how many a long sum is divided."""


def scratch_bytes(func: Any, args: Sequence[Any], result: Any) -> int:
    """Bytes that an operation with these arguments and this result takes until it returns."""
    if func is aten.sum.dim_IntList:
        return _sum(args[0], result)
    count = _SCRATCH.get(func)
    return count(result) if count else 0


def flex_scratch_bytes(func: Any, args: Sequence[Any], result: Any) -> int:
    """The same where another fused kernel stands for FlexAttention: a number per row, in forward and in backward."""
    if func is aten.sum.dim_IntList:
        return _sum(args[0], result)
    return _number_per_row(result) if func in _FUSED else 0


def _sum(summed: Tensor, result: Tensor) -> int:
    """What blocks of threads leave to the one that adds their sums over all but the last dimension: for each a float32
    for every thread and output of it (setReduceConfig in aten/src/ATen/native/cuda/Reduce.cuh).
    """
    outputs = result.numel()
    if outputs < 128 or summed.shape[-1] != outputs or not summed.is_contiguous():
        return 0
    vector = next(width for width in (4, 2, 1) if outputs % width == 0)
    threads = 512 // vector
    width, height = 32, min(_power_of_two(summed.numel() // outputs), threads // 32)
    per_thread = -(-(summed.numel() // outputs) // height)
    grid = -(-(outputs // vector) // width)
    most = MULTIPROCESSORS * (2048 // (width * height))
    if per_thread < 16 or grid > most:
        return 0
    blocks = max(min(-(-most // grid), -(-per_thread // 16)), -(-per_thread // 256))
    return 4 * outputs * blocks * width * vector if blocks > 1 else 0


def _power_of_two(count: int) -> int:
    """The largest that is not more."""
    return 1 << (count.bit_length() - 1)


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
