"""Implementations of attention. To add one, add a function to _FUNCTIONS and a row of its name to ATTENTIONS.

Each takes queries, keys and values, (batch, [heads,] tokens, d_head), and returns a tensor of the same shape. With
`causal`, a position attends to itself and the positions before it, else to all.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from lmsweep.trials.lengths.batches import Batch
from lmsweep.trials.model.annotations import Range
from lmsweep.trials.model.transformer.document_mask import (
    Device,
    additive_mask,
    document_of_positions,
    documents_of,
    lengths_of,
    may_attend,
)
from lmsweep.trials.model.transformer.flex_attention import Backend, banded_block_mask, block_mask_of, flex
from lmsweep.trials.model.transformer.varlen_attention import cu_seqlens_of, cu_seqlens_of_batch, varlen, varlen_kernel
from lmsweep.trials.model.users.users_attention import users_attention
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.attentions import ATTENTIONS

AttentionFunction = Callable[[Tensor, Tensor, Tensor], Tensor]


def naive(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, window: int | None = None, documents: Tensor | None = None
) -> Tensor:
    """Attention as separate PyTorch operations, like that of the published models. Every call builds its own mask, so
    autograd saves tokens² bytes of mask in each layer."""
    return weighted_values(softmax(scaled_scores(q, k, causal, window, documents)), v)


def naive_softmax(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, window: int | None = None, documents: Tensor | None = None
) -> Tensor:
    """Separate operations with PyTorch's softmax: one kernel, which saves one score matrix, not two."""
    scores = scaled_scores(q, k, causal, window, documents)
    with Range("softmax"):
        weights = torch.softmax(scores, dim=-1)
    return weighted_values(weights, v)


def scaled_scores(
    q: Tensor, k: Tensor, causal: bool, window: int | None = None, documents: Tensor | None = None
) -> Tensor:
    """q kᵀ / sqrt(d_head), with -inf where a position must not attend: (..., tokens, tokens)."""
    with Range("scores"):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if not causal and documents is None:  # then there is no window either: it needs `causal`
            return scores
        attended = may_attend(q.shape[-2], q.device, causal=causal, window=window, documents=documents)
        return torch.where(attended, scores, -torch.inf)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension: subtract the maximum, exponentiate, divide by the sum."""
    with Range("softmax"):
        exponentials = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
        return exponentials / exponentials.sum(dim=-1, keepdim=True)


def weighted_values(weights: Tensor, v: Tensor) -> Tensor:
    """Sums of the values (..., tokens, d_head), weighted by (..., tokens, tokens)."""
    with Range("value_matmul"):
        return weights @ v


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, grouped: bool = False, mask: Tensor | None = None
) -> Tensor:
    """scaled_dot_product_attention; PyTorch picks the kernel. `grouped`: keys have fewer heads. A mask (tokens,
    tokens), which is added to the scores, takes the place of `causal`."""
    if q.dim() == 3:  # PyTorch considers fused kernels only for inputs with a dimension of heads; one shares no keys
        return sdpa(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), causal=causal, mask=mask).squeeze(1)
    with Range("fused_attention"):
        plain = causal and mask is None
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=plain, enable_gqa=grouped)


def _sdpa_by(kernel: SDPBackend, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    with _only(kernel):
        return sdpa(q, k, v, **options)


def _only(kernel: SDPBackend) -> AbstractContextManager[Any]:
    """A context in which scaled_dot_product_attention may use only this kernel; almost free inside `kernel_chosen`,
    where it is the only one already."""
    if not torch.compiler.is_compiling() and [one for one, enabled in _ENABLED.items() if enabled()] == [kernel]:
        return nullcontext()
    return sdpa_kernel(kernel)


_ENABLED: dict[SDPBackend, Callable[[], bool]] = {
    SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled,
    SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.mem_efficient_sdp_enabled,
    SDPBackend.CUDNN_ATTENTION: torch.backends.cuda.cudnn_sdp_enabled,
}


_FUNCTIONS = {function.__name__: function for function in (naive, naive_softmax, sdpa, flex, varlen)}
ATTENTION: dict[str, Callable[..., Tensor]] = {
    name: partial(_sdpa_by, getattr(SDPBackend, one.kernel)) if one.kernel else _FUNCTIONS[name]
    for name, one in ATTENTIONS.items()
}
"""Word of the field `attention` -> the function of that name, or PyTorch's with one kernel."""


def kernel_chosen(name: str) -> AbstractContextManager[object]:
    """A context that selects the implementation's kernel once; selecting it in every call takes the host 10 µs."""
    kernel = ATTENTIONS[name].kernel if name in ATTENTIONS else None
    return sdpa_kernel(getattr(SDPBackend, kernel)) if kernel else nullcontext()


def _with_shared_heads(function: Callable[..., Tensor], config: TrialConfig) -> Callable[..., Tensor]:
    """The attention, for fewer heads of keys and values than of queries if the configuration has fewer: the kernel
    shares them, or they are repeated in memory."""
    if config.num_kv_heads in (None, config.num_heads):
        return function
    if config.attention in ATTENTIONS and ATTENTIONS[config.attention].shares_heads:
        return partial(function, grouped=True)

    def repeated(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        groups = q.shape[-3] // k.shape[-3]
        return function(q, k.repeat_interleave(groups, dim=-3), v.repeat_interleave(groups, dim=-3), **options)

    return repeated


def attention_for(
    config: TrialConfig, *, device: Device, dtype: torch.dtype, backend: str | Backend = "inductor"
) -> AttentionFunction:
    """The configuration's attention, with all that it needs besides q, k and v built once on the device. `dtype` is
    that of q, k and v; `backend` is that of torch.compile, for FlexAttention."""
    if is_reference(config.attention):
        return _with_shared_heads(users_attention(config, device=device, dtype=dtype), config)
    function = _with_shared_heads(ATTENTION[config.attention], config)
    options = _options(config, backend)
    if config.varies:
        return Masked(partial(function, **options), {})  # which takes the masks of each batch
    mask_options, tensors = _masks_of_all(config, device, dtype)
    attend = partial(function, **options, **mask_options)
    return Masked(attend, tensors) if tensors else attend


def _options(config: TrialConfig, backend: str | Backend) -> dict[str, Any]:
    """What the configuration's attention is called with, whatever the batch."""
    masked_by = ATTENTIONS[config.attention].masked_by
    if masked_by == "cu_seqlens":
        return {"kernel": varlen_kernel(config)}  # which knows whether it is causal
    options: dict[str, Any] = {"causal": config.causal}
    if masked_by == "block_mask":
        # None: torch.compile finds out which sizes vary. False would compile again for each.
        options |= {"backend": backend, **({"dynamic": None} if config.varies else {})}
    elif masked_by == "positions" and config.window is not None:
        options["window"] = config.window
    return options


def _masks_of_all(config: TrialConfig, device: Device, dtype: torch.dtype) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The masks where all batches are alike, by parameter: options, and separately tensors, which become buffers."""
    masked_by = ATTENTIONS[config.attention].masked_by
    if masked_by == "block_mask":
        return {"block_mask": block_mask_of(config, device)}, {}
    if masked_by == "cu_seqlens":
        lengths = lengths_of(config)
        return {"per_sequence": len(lengths), "longest": max(lengths)}, {"cu_seqlens": cu_seqlens_of(config, device)}
    documents = document_of_positions(config, device)
    tensors = {} if documents is None else _document_mask(config, documents, dtype)
    return {}, tensors


def masks_of(config: TrialConfig, batch: Batch, device: Device, dtype: torch.dtype) -> dict[str, Any]:
    """What the configuration's attention is called with for this batch, where batches differ. Padded rows need no mask:
    attention is causal, and padding comes last."""
    masked_by, width = ATTENTIONS[config.attention].masked_by, batch.shape[1]
    documents = documents_of(batch, device) if config.batching == "packed" else None
    if masked_by == "block_mask":
        mask = banded_block_mask(width, device, causal=config.causal, window=config.window, documents=documents)
        return {"block_mask": mask}
    if masked_by == "cu_seqlens":
        return {"cu_seqlens": cu_seqlens_of_batch(batch, device)}
    if documents is None:
        return {}
    return _document_mask(replace(config, context_length=width), documents[:, None], dtype)  # for all heads


def _document_mask(config: TrialConfig, documents: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    if ATTENTIONS[config.attention].masked_by == "positions":
        return {"documents": documents}
    return {"mask": additive_mask(config, documents, dtype)}


class Masked(nn.Module):
    """Attention with masks: of all batches as buffers, which torch.compile takes to last, or `take`n for each batch."""

    def __init__(self, function: Callable[..., Tensor], tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.function = function
        self.names = list(tensors)
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor, persistent=False)

    def take(self, masks: dict[str, Any]) -> None:
        self.names = list(masks)
        for name, mask in masks.items():
            setattr(self, name, mask)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.function(q, k, v, **{name: getattr(self, name) for name in self.names})
