"""A device's operators for fake tensors on the CPU, for which PyTorch would choose other ones.

They decide what is kept for backward: for dropout, CUDA keeps a mask of one byte per element; fused attention and
autocast save other tensors than on the CPU.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from lmsweep.trials.machine.torch_private import CUDNN, EFFICIENT, FLASH, MATH, OpOverload, kernels_replaced
from lmsweep.trials.model.transformer.attention_functions import kernel_chosen
from lmsweep.trials.prediction.without_device.chosen_kernel import Call, Kernel, chosen_kernel
from lmsweep.trials.prediction.without_device.cuda_autocast import cuda_autocast
from lmsweep.trials.spec.config import TrialConfig

aten = torch.ops.aten


@contextmanager
def device_operators(config: TrialConfig, *, any_width: bool = False) -> Iterator[None]:
    """A context in which operators on fake CPU tensors act as the device's. any_width: fused kernels take any width."""
    kernels: dict[str, Callable[..., Tensor]] = {}  # operators made of others, which autograd records
    if config.device_type != "cpu":
        # In predictions `sdpa` stands in for FlexAttention (`eager_on_fakes`), which takes any width.
        fused = FusedAttention(config.device_type, any_width=any_width or config.attention == "flex")
        kernels["scaled_dot_product_attention"] = fused.attend
    if config.device_type == "cuda":
        kernels["dropout"] = _dropout
    casts = nullcontext() if config.device_type == "cpu" else cuda_autocast()
    with kernels_replaced(kernels, "CompositeImplicitAutograd"), casts, kernel_chosen(config.attention):
        yield


class FusedAttention:
    """scaled_dot_product_attention as it returns and saves what a device's kernels do (aten/src/ATen/native/
    transformers/attention.cpp). All fused kernels save their inputs, the output and one number per row; FlashAttention
    stands for cuDNN's kernel where both accept the call."""

    def __init__(self, device_type: str, *, any_width: bool) -> None:
        self.is_metal = device_type == "mps"
        self.any_width = any_width

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """(batch, heads, context, d_head) twice and (..., d_value) to (..., d_value). `scale` changes no memory."""
        call = Call(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, self.any_width)
        kernel, mask = self._chosen(call), attn_mask
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype)  # of any values: only its memory matters
        if kernel == Kernel.MATH:
            return _first(MATH(*call.inputs, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa))
        if kernel == Kernel.EFFICIENT:
            mask = None if mask is None else self._aligned(mask).expand(*query.shape[:-1], key.shape[-2])
            return _first(EFFICIENT(*call.inputs, mask, call.needs_gradients, dropout_p, is_causal))
        width = query.shape[-1]
        if kernel == Kernel.CUDNN and (mask is not None or not call.is_one_width):  # FlashAttention takes neither
            return _first(CUDNN(*call.inputs, mask, call.needs_gradients, dropout_p, is_causal))
        if self.any_width or width % 8 == 0:
            return _first(FLASH(*call.inputs, dropout_p, is_causal))
        padded = [pad(one, (0, -width % 8)) for one in call.inputs]  # FlashAttention takes multiples of 8
        return _first(FLASH(*padded, dropout_p, is_causal))[..., :width]

    def _chosen(self, call: Call) -> Kernel:
        if self.is_metal:  # EFFICIENT stands in for Metal's kernel, which takes only calls without gradients
            return Kernel.MATH if call.needs_gradients or call.dropout else Kernel.EFFICIENT
        return chosen_kernel(call)

    def _aligned(self, mask: Tensor) -> Tensor:
        """The mask with rows that begin at multiples of 8, as the memory-efficient kernel needs it."""
        is_aligned = mask.stride(-1) == 1 and all(step % 8 == 0 for step in mask.stride()[:-1])
        if self.any_width or is_aligned:
            return mask
        length = mask.shape[-1]  # if it is a multiple of 8 already, PyTorch pads by 8 all the same, and so does this
        return pad(mask, (0, 8 - length % 8))[..., :length]


def _first(results: tuple[Tensor, ...]) -> Tensor:
    return results[0]


def _dropout(x: Tensor, p: float, train: bool) -> Tensor:
    """(...) to (...): CUDA keeps a mask of booleans, the CPU one of numbers."""
    if not train or p == 0.0 or not x.numel():
        return x
    dropped: Tensor = aten.native_dropout(x, p, train)[0]
    return dropped


OUTPUTS: Mapping[OpOverload, Callable[..., Any]] = {
    # The CPU saves exponentials too, where CUDA saves an empty tensor.
    aten.log_sigmoid_forward.default: lambda x: (torch.empty_like(x), x.new_empty(0)),
    aten.log_sigmoid_backward.default: lambda gradient, *_: torch.empty_like(gradient),
}
"""Operator -> what it returns on CUDA, where that differs from the CPU. `fake_device` installs them for CUDA."""
