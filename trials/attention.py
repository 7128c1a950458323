"""Attention, by name. To add an implementation: a function and a line in ATTENTION."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

AttentionFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Causal attention of queries, keys and values, each (..., context, head dimension); the result has that shape too."""


def naive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention written out, operation by operation, as the published models do it."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    position = torch.arange(q.shape[-2], device=q.device)
    causal = position[:, None] >= position[None, :]
    return softmax(torch.where(causal, scores, -torch.inf)) @ v


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension as subtract the maximum, exponentiate, divide by the sum."""
    exponentials = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's fused attention; PyTorch picks the kernel."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


ATTENTION: dict[str, AttentionFunction] = {"naive": naive, "sdpa": sdpa}
