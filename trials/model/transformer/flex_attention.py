"""Attention with PyTorch's FlexAttention, compiled, and its block masks: causal, with a window, within documents."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from lmsweep.trials.model.annotations import Range
from lmsweep.trials.model.transformer.document_mask import document_of_positions
from lmsweep.trials.spec.config import TrialConfig

Backend = Callable[[torch.fx.GraphModule, list[Tensor | torch.SymInt]], Callable[..., object]]
"""A backend of torch.compile: from a graph and example inputs to a function that computes the graph."""

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
    dynamic: bool | None = False,
) -> Tensor:
    """FlexAttention of q, k and v, (batch, [heads,] tokens, d_head), to the same shape. Inside a compiled model it is
    compiled with the model, otherwise by itself with `backend`. `block_mask` comes from `block_mask_of`; without one,
    each causal call builds its own. grouped: keys have fewer heads."""
    if q.dim() == 3:  # one head, so no group shares keys
        q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
        return flex(q, k, v, causal=causal, block_mask=block_mask, backend=backend, dynamic=dynamic).squeeze(1)
    if causal and block_mask is None:
        block_mask = banded_block_mask(q.shape[-2], q.device)
    attend: Any = flex_attention if torch.compiler.is_compiling() else _compiled_flex(backend, dynamic)
    with Range("fused_attention"):
        mixed: Tensor = attend(q, k, v, block_mask=block_mask, enable_gqa=grouped)
    return mixed


def block_mask_of(config: TrialConfig, device: torch.device | str) -> BlockMask | None:
    """The block mask of the configuration's attention; None if every position attends to all."""
    documents = document_of_positions(config, device)
    if not config.causal and config.window is None and documents is None:
        return None
    return banded_block_mask(
        config.context_length, device, causal=config.causal, window=config.window, documents=documents
    )


def banded_block_mask(
    context_length: int,
    device: torch.device | str,
    *,
    causal: bool = True,
    window: int | None = None,
    documents: Tensor | None = None,
) -> BlockMask:
    """The blocks of the score matrix to compute: causal, with a window, within documents, or all of these. window: each
    position attends to itself and `window` - 1 before it, which needs `causal`. documents: the index of each position's
    document, (tokens,) or (batch, tokens), in ascending order. Blocks on the diagonal and at the edge of the window or
    of a document have a mask. PyTorch's create_block_mask finds the same blocks, but evaluates context_length²
    positions."""
    blocks = -(-context_length // FLEX_BLOCK)
    row = torch.arange(blocks, dtype=torch.int32, device=device)
    distance = row[:, None] - row  # (query blocks, key blocks): how many blocks the keys lie before the queries
    # Per pair of blocks: whether any query attends to any key, and whether every query attends to every key.
    if causal:
        some, full = distance >= 0, distance > 0
    else:
        is_whole = (row + 1) * FLEX_BLOCK <= context_length  # the end of the context may cut the last block of keys
        some, full = torch.ones_like(distance, dtype=torch.bool), is_whole.expand_as(distance)
    if window is not None:
        nearest = (distance - 1) * FLEX_BLOCK + 1  # positions from the first query back to the last key
        farthest = (distance + 1) * FLEX_BLOCK - 1  # from the last query back to the first key
        some, full = some & (nearest < window), full & (farthest < window)
    if documents is not None:
        first = documents[..., row * FLEX_BLOCK]
        last = documents[..., ((row + 1) * FLEX_BLOCK - 1).clamp(max=context_length - 1)]
        query_first, query_last = first[..., :, None], last[..., :, None]
        key_first, key_last = first[..., None, :], last[..., None, :]
        some = some & (query_first <= key_last) & (key_first <= query_last)  # they share a document
        # Both lie in one document: indices ascend, so first <= last, and then all four are equal.
        full = full & (query_first == key_last) & (key_first == query_last)

    def listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
        """For each row of blocks: how many are chosen, and the indices of all blocks, the chosen ones first."""
        indices = torch.argsort(chosen.to(torch.int32), dim=-1, descending=True, stable=True).to(torch.int32)
        shape = (-1, 1, *chosen.shape[-2:])  # (batch, heads, query blocks, key blocks)
        return chosen.sum(dim=-1, dtype=torch.int32).view(shape[:-1]), indices.view(shape).contiguous()

    def attended(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        allowed = query >= key if causal else query >= 0
        if window is not None:
            allowed = allowed & (query < key + window)
        if documents is not None:
            of_row = documents if documents.dim() == 1 else documents[batch]
            allowed = allowed & (of_row[query] == of_row[key])
        return allowed

    partly, partly_indices = listed(some & ~full)
    wholly, wholly_indices = listed(full)
    return BlockMask.from_kv_blocks(
        kv_num_blocks=partly,
        kv_indices=partly_indices,
        full_kv_num_blocks=wholly,
        full_kv_indices=wholly_indices,
        BLOCK_SIZE=FLEX_BLOCK,
        mask_mod=attended,
        seq_lengths=(context_length, context_length),
    )


@functools.cache
def _compiled_flex(backend: str | Backend, dynamic: bool | None) -> Callable[..., Tensor]:
    return torch.compile(flex_attention, backend=backend, dynamic=dynamic, fullgraph=True)
