"""A device's operators for fake tensors on the CPU, where PyTorch chooses other ones by device.

They decide what is kept for backward: of CUDA a mask of one byte for dropout; what fused attention saves; and what
autocast casts.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import EFFICIENT, FLASH, FLASH_ON_CPU, MATH, OpOverload, kernels_replaced
from lmsweep.trials.prediction.without_device.cuda_autocast import cuda_autocast
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.attentions import ATTENTIONS

aten = torch.ops.aten


@contextmanager
def device_operators(config: TrialConfig) -> Iterator[None]:
    """A context in which operators on the CPU, without storage, allocate and save what the device's do."""
    kernels: dict[str, Callable[..., Tensor]] = {"scaled_dot_product_attention": FusedAttention(config).attend}
    if config.device_type == "cuda":
        kernels["dropout"] = _dropout
    casts = nullcontext() if config.device_type == "cpu" else cuda_autocast()
    with kernels_replaced(kernels, "CompositeImplicitAutograd"), casts:
        yield


class FusedAttention:
    """scaled_dot_product_attention as it returns and saves what a device's fused kernels do. All fused kernels save
    their inputs, the output and one number per row. The kernel is the one that PyTorch would choose: FlashAttention for
    16 bits (cuDNN saves the same), else the memory-efficient kernel."""

    def __init__(self, config: TrialConfig) -> None:
        self.device_type = config.device_type
        known = None if is_reference(config.attention) else ATTENTIONS[config.attention]
        self.efficient = known is not None and known.kernel == "EFFICIENT_ATTENTION"
        self.written_out = known is not None and known.kernel == "MATH"

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
        """scaled_dot_product_attention: (batch, heads, context, d_head) thrice to one of this shape."""
        inputs = (query, key, value)
        grouped = enable_gqa and query.shape[1] != key.shape[1]
        if self.written_out or query.dim() != 4:
            return _first(MATH(*inputs, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=grouped))
        if self.device_type == "cpu":
            return _first(FLASH_ON_CPU(*inputs, dropout_p, is_causal, attn_mask=attn_mask))
        is_narrow = query.dtype in (torch.float16, torch.bfloat16)
        if is_narrow and not self.efficient and attn_mask is None:
            return _first(FLASH(*inputs, dropout_p, is_causal))
        if grouped:  # only FlashAttention has groups of queries
            return _first(MATH(*inputs, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=grouped))
        mask = attn_mask
        if mask is not None:
            if mask.dtype == torch.bool:
                mask = torch.zeros_like(mask, dtype=query.dtype)
            mask = mask.expand(*query.shape[:-1], key.shape[-2])
        with_gradients = torch.is_grad_enabled()
        return _first(EFFICIENT(*inputs, mask, with_gradients, dropout_p, is_causal))


def _first(results: tuple[Tensor, ...]) -> Tensor:
    return results[0]


def _dropout(x: Tensor, p: float, train: bool) -> Tensor:
    """(...) to (...): CUDA keeps a mask of booleans, the CPU one of numbers."""
    if not train or p == 0.0 or not x.numel():
        return x
    dropped: Tensor = aten.native_dropout(x, p, train)[0]
    return dropped


def _log_sigmoid_backward(gradient: Tensor, *_: Tensor) -> Tensor:
    return torch.empty_like(gradient)


OUTPUTS: Mapping[OpOverload, Callable[..., Any]] = {
    # The CPU also keeps exponentials.
    aten.log_sigmoid_forward.default: lambda x: (torch.empty_like(x), x.new_empty(0)),
    aten.log_sigmoid_backward.default: _log_sigmoid_backward,
}
"""Operators whose results differ by device, as those of CUDA."""
