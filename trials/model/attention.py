"""Attention, by name. To add an implementation: a function, and a line in ATTENTION.

Each takes queries, keys and values, (batch, heads, context, d_head) or without heads (batch, context, d_head), and
returns a tensor of that shape. With `causal` a position attends to itself and those before it, else to all. What a
device or type cannot do, `lmsweep.trials.model.attention_support` says before anything runs.
"""

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from lmsweep.trials.model.annotations import Range
from lmsweep.trials.spec.config import TrialConfig

AttentionFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attention of queries, keys and values, each (..., context, d_head), to a tensor of that shape."""

FLEX_BLOCK = 128
"""Positions along each side of the blocks in which FlexAttention looks for what it may leave out."""


def naive(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Tensor:
    """Attention written out, operation by operation, as the published models do it.

    Every call makes its own mask, so each layer keeps context² bytes of it for backward.
    """
    return weighted_values(softmax(scaled_scores(q, k, causal)), v)


def naive_softmax(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Tensor:
    """Attention written out, with PyTorch's softmax: one kernel, and one matrix of the scores' size kept, not two."""
    return weighted_values(fused_softmax(scaled_scores(q, k, causal)), v)


def scaled_scores(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """QK^T / sqrt(d_head), -inf where a position may not look; (..., context, context)."""
    with Range("scores"):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if not causal:
            return scores
        position = torch.arange(q.shape[-2], device=q.device)
        return torch.where(position[:, None] >= position, scores, -torch.inf)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension: subtract the maximum, exponentiate, divide by the sum."""
    with Range("softmax"):
        exponentials = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
        return exponentials / exponentials.sum(dim=-1, keepdim=True)


def fused_softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension, PyTorch's."""
    with Range("softmax"):
        return torch.softmax(scores, dim=-1)


def weighted_values(weights: Tensor, v: Tensor) -> Tensor:
    """Sums of the values by the weights (..., context, context)."""
    with Range("value_matmul"):
        return weights @ v


def sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Tensor:
    """PyTorch's scaled_dot_product_attention; PyTorch picks the kernel."""
    # Without a dimension of heads no fused kernel is considered.
    if q.dim() == 3:
        return sdpa(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), causal=causal).squeeze(1)
    with Range("fused_attention"):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)


def sdpa_math(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Tensor:
    """scaled_dot_product_attention as a sequence of PyTorch's own operations."""
    with _only(SDPBackend.MATH):
        return sdpa(q, k, v, causal=causal)


def sdpa_flash(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Tensor:
    """scaled_dot_product_attention by FlashAttention."""
    with _only(SDPBackend.FLASH_ATTENTION):
        return sdpa(q, k, v, causal=causal)


def sdpa_efficient(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Tensor:
    """scaled_dot_product_attention by the memory-efficient kernel."""
    with _only(SDPBackend.EFFICIENT_ATTENTION):
        return sdpa(q, k, v, causal=causal)


def sdpa_cudnn(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Tensor:
    """scaled_dot_product_attention by cuDNN."""
    with _only(SDPBackend.CUDNN_ATTENTION):
        return sdpa(q, k, v, causal=causal)


def _only(kernel: SDPBackend) -> AbstractContextManager[Any]:
    """scaled_dot_product_attention has this kernel and no other; costs next to nothing inside `kernel_chosen`."""
    if (
        not torch.compiler.is_compiling()
        and _ENABLED[kernel]()
        and sum(enabled() for enabled in _ENABLED.values()) == 1
    ):
        return nullcontext()
    return sdpa_kernel(kernel)


_ENABLED: dict[SDPBackend, Callable[[], bool]] = {
    SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled,
    SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.mem_efficient_sdp_enabled,
    SDPBackend.CUDNN_ATTENTION: torch.backends.cuda.cudnn_sdp_enabled,
}


def flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = True,
    block_mask: BlockMask | None = None,
    backend: str | Callable[..., Any] = "inductor",
) -> Tensor:
    """FlexAttention, compiled: inside a compiled model with it, else by itself.

    `block_mask` is that of `causal_block_mask`; without one it is made here, each time.
    """
    if q.dim() == 3:
        q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
        return flex(q, k, v, causal=causal, block_mask=block_mask, backend=backend).squeeze(1)
    if causal and block_mask is None:
        block_mask = causal_block_mask(q.shape[-2], q.device)
    attend: Any = flex_attention if torch.compiler.is_compiling() else _compiled_flex(backend)
    with Range("fused_attention"):
        mixed: Tensor = attend(q, k, v, block_mask=block_mask)
    return mixed


def causal_block_mask(context_length: int, device: torch.device | str) -> BlockMask:
    """Which blocks of the scores FlexAttention computes: those below the diagonal whole, those on it masked.

    PyTorch's create_block_mask finds the same by looking at all context² positions.
    """
    blocks = -(-context_length // FLEX_BLOCK)
    row = torch.arange(blocks, dtype=torch.int32, device=device)
    return BlockMask.from_kv_blocks(
        kv_num_blocks=torch.ones_like(row)[None, None],
        kv_indices=row[:, None].repeat(1, blocks)[None, None],
        full_kv_num_blocks=row[None, None],
        full_kv_indices=row.repeat(blocks, 1)[None, None],
        BLOCK_SIZE=FLEX_BLOCK,
        mask_mod=_not_ahead,
        seq_lengths=(context_length, context_length),
    )


def _not_ahead(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


@functools.cache
def _compiled_flex(backend: str | Callable[..., Any]) -> Callable[..., Tensor]:
    return torch.compile(flex_attention, backend=backend, dynamic=False, fullgraph=True)


ATTENTION: dict[str, Callable[..., Tensor]] = {
    "naive": naive,
    "naive_softmax": naive_softmax,
    "sdpa": sdpa,
    "sdpa_math": sdpa_math,
    "sdpa_flash": sdpa_flash,
    "sdpa_efficient": sdpa_efficient,
    "sdpa_cudnn": sdpa_cudnn,
    "flex": flex,
}


_KERNELS = {
    "sdpa_math": SDPBackend.MATH,
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
}


def kernel_chosen(name: str) -> AbstractContextManager[Any]:
    """Inside, this implementation need not choose its kernel in every call, which would take the host 10 µs each."""
    return sdpa_kernel(_KERNELS[name]) if name in _KERNELS else nullcontext()


def attention_for(
    config: TrialConfig, *, device: torch.device | str, backend: str | Callable[..., Any] = "inductor"
) -> AttentionFunction:
    """The configuration's attention for its context length, with what it needs made on the device once.

    `backend` is torch.compile's, for FlexAttention.
    """
    options: dict[str, Any] = {"causal": config.causal}
    if config.attention == "flex":
        options["backend"] = backend
        options["block_mask"] = causal_block_mask(config.context_length, device) if config.causal else None
    function = ATTENTION[config.attention]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return function(q, k, v, **options)

    return attend
