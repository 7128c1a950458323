"""The model: a pre-norm transformer with RMSNorm, rotary embeddings, SwiGLU and an untied head, without biases.

Its logits are bitwise equal to those of the model behind the published tables (Stanford CS336, 2025), and autograd
saves the same tensors, so that memory is comparable. Its kernels differ: the course's linear layers are einsums, which
PyTorch runs as batched products.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Unpack, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from lmsweep.trials.model.annotations import Range
from lmsweep.trials.model.transformer.attention_functions import AttentionFunction
from lmsweep.trials.model.transformer.layers import (
    Embedding,
    Experts,
    Factory,
    FeedForward,
    Linear,
    RMSNorm,
    RotaryEmbedding,
    at_least_float32,
)
from lmsweep.trials.spec.model_sizes import ModelSize
from lmsweep.trials.spec.ways.checkpointings import PRODUCTS, Checkpointing, checkpointing_of

Run = Callable[[Tensor], Tensor]
_SAVED_OPERATORS = [getattr(torch.ops.aten, name).default for name in PRODUCTS]
keeping_products = partial(create_selective_checkpoint_contexts, _SAVED_OPERATORS)
"""Return the contexts of forward and of its recomputation in which the results of PRODUCTS are kept."""


class CausalSelfAttention(nn.Module):
    """Multi-head or grouped-query attention (Ainslie et al. 2023) with rotary embeddings."""

    def __init__(
        self, size: ModelSize, *, rope: RotaryEmbedding, attention: AttentionFunction, **factory: Unpack[Factory]
    ) -> None:
        super().__init__()
        self.head_width = size.head_width
        self.rope = rope
        self.attention = attention
        of_queries, of_keys = size.terms["query_width"], size.terms["key_width"]
        self.query = Linear(size.d_model, of_queries, **factory)
        self.key = Linear(size.d_model, of_keys, **factory)
        self.value = Linear(size.d_model, of_keys, **factory)
        self.output = Linear(of_queries, size.d_model, **factory)
        self.query_norm = RMSNorm(self.head_width, **factory) if size.qk_norm else None
        self.key_norm = RMSNorm(self.head_width, **factory) if size.qk_norm else None

    def forward(self, x: Tensor) -> Tensor:
        with Range("attention"):
            q, k, v = (self._split_heads(project(x)) for project in (self.query, self.key, self.value))
            if self.query_norm is not None and self.key_norm is not None:
                q, k = self.query_norm(q), self.key_norm(k)
            mixed = self.attention(self.rope(q), self.rope(k), v)
            merged: Tensor = self.output(mixed.transpose(-3, -2).flatten(-2))
            return merged

    def _split_heads(self, x: Tensor) -> Tensor:
        """(batch, tokens, heads · d_head) to (batch, heads, tokens, d_head)."""
        heads: Tensor = x.unflatten(-1, (-1, self.head_width))
        return heads.transpose(-3, -2)


class Block(nn.Module):
    """Attention, then feed-forward, each after a norm and added to the residual stream."""

    def __init__(
        self, size: ModelSize, *, rope: RotaryEmbedding, attention: AttentionFunction, **factory: Unpack[Factory]
    ) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(size.d_model, **factory)
        self.attention = CausalSelfAttention(size, rope=rope, attention=attention, **factory)
        self.feed_forward_norm = RMSNorm(size.d_model, **factory)
        self.feed_forward = (FeedForward if size.num_experts is None else Experts)(size, **factory)
        self.recomputes: Callable[[Run, Tensor], Tensor] | None = None
        """The checkpoint inside of this block, where torch.compile sees it; None if there is none or it is outside."""

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x) if self.recomputes is None else self.recomputes(self.compute, x)

    def compute(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        mixed: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return mixed


def run_blocks(blocks: Iterable[Run], x: Tensor) -> Tensor:
    for block in blocks:
        x = block(x)
    return x


def run_checkpointed(blocks: Sequence[nn.Module], x: Tensor, checkpointing: str, *, draws_random: bool) -> Tensor:
    """Apply the blocks in order to (batch, tokens, d_model), saving only the input of each group of blocks. With
    `nested`, a group that is recomputed saves only the input of each of its blocks, which are then recomputed one by
    one. With `selective`, the results of PRODUCTS are saved as well and not computed again. draws_random: whether
    blocks draw random numbers; else the generators' states need not be saved."""
    way = checkpointing_of(checkpointing)
    size = way.group_size(len(blocks))
    if size is None:
        return run_blocks(blocks, x)
    save_input = input_saver(way, draws_random=draws_random)
    for first in range(0, len(blocks), size):
        group: list[Run] = list(blocks[first : first + size])
        if way.nested:
            group = [partial(save_input, block) for block in group]
        x = save_input(partial(run_blocks, group), x)
    return x


def input_saver(way: Checkpointing, *, draws_random: bool) -> Callable[[Run, Tensor], Tensor]:
    more: dict[str, Any] = {"context_fn": keeping_products} if way.keeps_products else {}
    return partial(checkpoint, use_reentrant=False, preserve_rng_state=draws_random, **more)


class Transformer(nn.Module):
    """The whole model, on (batch, tokens). `positions`: those of the tokens, (tokens,); None: 0, 1, 2, ...
    `draws_random`: whether blocks draw random numbers, which checkpointing has to draw again. `is_compiled_in`: whether
    the checkpoint is part of each block, not around it."""

    def __init__(
        self,
        size: ModelSize,
        *,
        vocab_size: int,
        context_length: int,
        attention: AttentionFunction,
        checkpointing: str = "none",
        is_compiled_in: bool = False,
        draws_random: bool = False,
        positions: Tensor | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__()
        d_model, num_layers = size.d_model, size.num_layers
        rope = RotaryEmbedding(size.head_width, context_length, **factory, positions=positions)
        self.token_embedding = Embedding(vocab_size, d_model, **factory)
        self.blocks = nn.ModuleList(Block(size, rope=rope, attention=attention, **factory) for _ in range(num_layers))
        self.final_norm = RMSNorm(d_model, **factory)
        self.head = Linear(d_model, vocab_size, **factory)
        if size.tied_head:
            self.head.weight = self.token_embedding.weight
        self.returns_hidden = False
        """Whether forward leaves out the head, for a loss that computes the logits itself."""
        self.checkpointing = "none" if is_compiled_in else checkpointing
        self.draws_random = draws_random
        for block in self.blocks if is_compiled_in else ():
            cast(Block, block).recomputes = input_saver(checkpointing_of(checkpointing), draws_random=draws_random)

    def forward(self, tokens: Tensor) -> Tensor:
        """Integers (batch, tokens) to logits (batch, tokens, vocab_size), or with `returns_hidden` to hidden states."""
        hidden: Tensor = self.final_norm(self.run_blocks(self.token_embedding(tokens)))
        return hidden if self.returns_hidden else self.head(hidden)

    def run_blocks(self, x: Tensor) -> Tensor:
        return run_checkpointed(list(self.blocks), x, self.checkpointing, draws_random=self.draws_random)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean negative log-likelihood of the targets, a scalar, by a log-sum-exp of separate operations. Logits are
    (batch, tokens, vocab_size), targets (batch, tokens). Computed in at least float32."""
    logits = at_least_float32(logits)
    # The maximum only prevents overflow; it needs no gradient.
    logits = logits - logits.detach().max(dim=-1, keepdim=True).values
    log_probabilities = logits - logits.exp().sum(dim=-1, keepdim=True).log()
    return -log_probabilities.gather(-1, targets[..., None]).mean()
