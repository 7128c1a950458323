"""Temporary memory that CUDA kernels allocate while they run. Kernels of other devices allocate none."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import (
    CUDNN_BACKWARD,
    EFFICIENT,
    EFFICIENT_BACKWARD,
    FLASH,
    FLASH_BACKWARD,
    SOFTMAX_BACKWARD,
    VARLEN_BACKWARD,
)
from lmsweep.trials.prediction.without_device.caching_allocator import round_up
from lmsweep.trials.spec.config import TrialConfig

aten = torch.ops.aten

Scratch = Callable[[object, Sequence[object], object], int]
"""Maps PyTorch's operator, its arguments and its result to the bytes that the operator allocates until it returns."""

MULTIPROCESSORS = 132
"""Streaming multiprocessors of an H100 or H200, which decide how a long sum is divided into blocks."""


def scratch_of(config: TrialConfig) -> Scratch | None:
    """Return the function that counts the scratch memory of this trial's operators; None if its device needs none."""
    if config.device_type != "cuda":
        return None
    return {"flex": flex_scratch_bytes, "sdpa_cudnn": cudnn_scratch_bytes}.get(config.attention, scratch_bytes)


def scratch_bytes(func: object, args: Sequence[object], result: object) -> int:
    """Bytes that PyTorch's operator `func` with these arguments and this result allocates until it returns."""
    if func is aten.sum.dim_IntList:
        return _sum(cast(Tensor, args[0]), cast(Tensor, result))
    if str(func) == VARLEN_BACKWARD or func is FLASH_BACKWARD:
        # The output and its gradient are copied unless they are contiguous as (batch, context, heads, d_head)
        # (_flash_attention_backward in aten/src/ATen/native/transformers/cuda/attention_backward.cu).
        gradients, gradient, output = cast(tuple[Tensor, ...], result), cast(Tensor, args[0]), cast(Tensor, args[4])
        if func is FLASH_BACKWARD:
            return _flash_backward(gradients) + _copy(output.transpose(1, 2)) + _copy(gradient.transpose(1, 2))
        documents = cast(Tensor, args[6]).numel() - 1  # of the offsets at which they begin and end
        return _varlen_backward(gradients, documents=documents) + _copy(output) + _copy(gradient)
    count = _SCRATCH.get(func)
    return count(result) if count else 0


def flex_scratch_bytes(func: object, args: Sequence[object], result: object) -> int:
    """As `scratch_bytes`, with FlexAttention in place of each fused kernel: one float32 per row, in backward too."""
    if func is aten.sum.dim_IntList:
        return _sum(cast(Tensor, args[0]), cast(Tensor, result))
    return 4 * cast(tuple[Tensor, ...], result)[0].shape[:-1].numel() if func in _FUSED else 0


def cudnn_scratch_bytes(func: object, args: Sequence[object], result: object) -> int:
    """As `scratch_bytes`, for cuDNN's attention, which a run without the device replaces by FlashAttention. cuDNN's
    workspace has the same size (measured on an H100), but it takes any layout and makes no copies."""
    if func is FLASH_BACKWARD:
        return _flash_backward(cast(tuple[Tensor, ...], result))
    return scratch_bytes(func, args, result)


def _sum(summed: Tensor, result: Tensor) -> int:
    """Partial sums of a reduction over all but the last dimension that is divided over several blocks of threads.
    PyTorch allocates for each output and each block as many float32 as a row of the block's threads has outputs
    (global_memory_size in aten/src/ATen/native/cuda/Reduce.cuh)."""
    outputs = result.numel()
    if summed.shape[-1] != outputs or not summed.is_contiguous():
        return 0
    return partial_sums(summed.numel() // outputs, outputs)


def partial_sums(rows: int, outputs: int) -> int:
    """Bytes of the partial sums over so many rows; 0 if one block takes all. Comments have Reduce.cuh's names.
    Of 4096 rows of 1024 outputs, 8 blocks of 32 x 4 threads take all outputs, and a thread 1024 rows. The device holds
    264 times as many blocks; but as a thread takes at least 16 rows, 64 times as many share the rows."""
    if outputs < 128:  # 4 times 32: blocks may be narrower than below, and the sums are small
        return 0
    vector = next(width for width in (4, 2, 1) if outputs % width == 0)
    threads = 512 // vector  # MAX_NUM_THREADS
    width, height = 32, min(1 << (rows.bit_length() - 1), threads // 32)  # powers of two
    rows_per_thread = -(-rows // height)
    grid = -(-(outputs // vector) // width)
    resident = MULTIPROCESSORS * (2048 // (width * height))  # 2048 threads on each
    if rows_per_thread < 256 or grid > resident:  # max_values_per_thread
        return 0
    fewest, most = -(-rows_per_thread // 256), -(-rows_per_thread // 16)  # min_values_per_thread
    blocks = max(fewest, min(most, -(-resident // grid)))
    return 4 * outputs * blocks * width * vector if blocks > 1 else 0


def _flash_backward(result: tuple[Tensor, ...]) -> int:
    """The gradient of q and one number per row, in float32, with context and head dimension rounded up (mha_bwd in
    aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp)."""
    batch, heads, context, d_head = result[0].shape
    width = round_up(d_head, 32) if d_head <= 192 else 256
    return 4 * batch * heads * round_up(context, 128) * (width + 1)


def _copy(tensor: Tensor) -> int:
    """Bytes of a contiguous copy; 0 if there is none to make."""
    return 0 if tensor.is_contiguous() else tensor.numel() * tensor.element_size()


def _varlen_backward(result: tuple[Tensor, ...], *, documents: int) -> int:
    """As `_flash_backward`, with 128 rows more for each document (mha_varlen_bwd in the same file)."""
    tokens, heads, d_head = result[0].shape
    width = round_up(d_head, 32) if d_head <= 192 else 256
    return 4 * (tokens + 128 * documents) * heads * (width + 1)


def _efficient_backward(result: tuple[Tensor, ...]) -> int:
    """One float32 per row and, for 16 bits, q's gradient in float32, in blocks of 64 columns: measured on an H200."""
    batch, heads, context, d_head = result[0].shape
    width = 0 if result[0].dtype == torch.float32 else round_up(d_head, 64)
    return 4 * batch * heads * context * (width + 1)


_FUSED = (FLASH, FLASH_BACKWARD, EFFICIENT, EFFICIENT_BACKWARD)
_SCRATCH: dict[Any, Callable[[Any], int]] = {
    # The product of output and gradient, computed first (aten/src/ATen/native/cuda/SoftMax.cu).
    SOFTMAX_BACKWARD: lambda result: result.nbytes,
    EFFICIENT_BACKWARD: _efficient_backward,
    CUDNN_BACKWARD: _flash_backward,
}
