"""Attention, by name. To add an implementation: a function, and a line in ATTENTION."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

AttentionFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Causal attention of queries, keys and values, each (..., heads, context, d_head), to a tensor of that shape."""


def naive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention written out, operation by operation, as the published models do it.

    Every call makes its own mask, so each layer keeps context² bytes of it for backward.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    position = torch.arange(q.shape[-2], device=q.device)
    causal = position[:, None] >= position
    scores = torch.where(causal, scores, -torch.inf)
    weights = softmax(scores)
    return weights @ v


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension: subtract the maximum, exponentiate, divide by the sum."""
    exponentials = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's scaled_dot_product_attention; PyTorch picks the kernel."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


ATTENTION: dict[str, AttentionFunction] = {"naive": naive, "sdpa": sdpa}
