"""Attention with PyTorch's FlexAttention, compiled, and its causal block mask."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from lmsweep.trials.model.annotations import Range

Backend = Callable[[torch.fx.GraphModule, list[Tensor | torch.SymInt]], Callable[..., object]]
"""A backend of torch.compile: takes a graph and example inputs, returns a function that computes the graph."""

FLEX_BLOCK = 128
"""Positions along each side of a block: FlexAttention skips whole blocks of the score matrix."""


def flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = True,
    grouped: bool = False,
    block_mask: BlockMask | None = None,
    backend: str | Backend = "inductor",
) -> Tensor:
    """FlexAttention of q, k and v, (batch, heads, tokens, d_head) or (batch, tokens, d_head), to the same shape.

    Inside a compiled model it is compiled as part of the model, otherwise by itself with torch.compile's `backend`.
    With `grouped`, k and v have fewer heads than q. `block_mask` comes from `causal_block_mask`; without one, each call
    builds its own.
    """
    if q.dim() == 3:
        q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
        return flex(q, k, v, causal=causal, block_mask=block_mask, backend=backend).squeeze(1)
    if causal and block_mask is None:
        block_mask = causal_block_mask(q.shape[-2], q.device)
    attend: Any = flex_attention if torch.compiler.is_compiling() else _compiled_flex(backend)
    with Range("fused_attention"):
        mixed: Tensor = attend(q, k, v, block_mask=block_mask, enable_gqa=grouped)
    return mixed


def causal_block_mask(context_length: int, device: torch.device | str) -> BlockMask:
    """The blocks of the score matrix to compute: those below the diagonal unmasked, those on it masked.

    PyTorch's create_block_mask finds the same blocks by evaluating all context_length² positions.
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
def _compiled_flex(backend: str | Backend) -> Callable[..., Tensor]:
    return torch.compile(flex_attention, backend=backend, dynamic=False, fullgraph=True)
