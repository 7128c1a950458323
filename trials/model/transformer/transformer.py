"""The model: a pre-norm transformer with RMSNorm, rotary embeddings, SwiGLU and an untied head, without biases.

Its logits are bitwise equal to those of the model behind the published tables (Stanford CS336, 2025), and autograd
saves the same tensors, so that memory is comparable. Its kernels differ: the course's linear layers are einsums, which
PyTorch runs as batched products.
"""

from typing import TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from lmsweep.trials.model.annotations import Range
from lmsweep.trials.model.transformer.attention_functions import AttentionFunction
from lmsweep.trials.model.transformer.checkpointing import run_checkpointed
from lmsweep.trials.model.transformer.experts import Experts
from lmsweep.trials.spec.model_sizes import ModelSize

NORM_EPSILON = 1e-5
ROPE_THETA = 10_000.0

Device = torch.device | str


class Factory(TypedDict):
    """Where and in which type weights are created."""

    device: Device
    dtype: torch.dtype


def at_least_float32(x: Tensor) -> Tensor:
    """x itself if it is float32 or wider, else a float32 copy."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Linear(nn.Module):
    """y = x Wᵀ."""

    def __init__(self, d_in: int, d_out: int, **factory: Unpack[Factory]) -> None:
        super().__init__()
        std = (2 / (d_in + d_out)) ** 0.5
        self.weight = nn.Parameter(torch.empty(d_out, d_in, **factory).normal_(std=std))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class Embedding(nn.Module):
    def __init__(self, vocab_size: int, d_model: int, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model, **factory).normal_())

    def forward(self, tokens: Tensor) -> Tensor:
        """Integers (...) to (..., d_model)."""
        return self.weight[tokens]


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + ε) · weight, computed in at least float32."""

    def __init__(self, d_model: int, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model, **factory))

    def forward(self, x: Tensor) -> Tensor:
        with Range("norm"):
            wide = at_least_float32(x)
            normed = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + NORM_EPSILON)
            return (normed * self.weight).to(x.dtype)


class RotaryEmbedding(nn.Module):
    """Rotate each even/odd pair of a query or key by an angle proportional to its position (RoFormer). All layers share
    one instance, so that its tables are in memory once. The tables are at least float32."""

    cos: Tensor
    """(tokens, d_head / 2)."""
    sin: Tensor

    def __init__(
        self, d_head: int, context_length: int, *, device: Device, dtype: torch.dtype, positions: Tensor | None = None
    ) -> None:
        super().__init__()
        dtype = torch.promote_types(dtype, torch.float32)
        frequency = ROPE_THETA ** -(torch.arange(0, d_head, 2, device=device, dtype=dtype) / d_head)
        if positions is None:
            positions = torch.arange(context_length, device=device, dtype=dtype)
        angle = positions[:, None].to(dtype) * frequency
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., tokens, d_head) to the same."""
        even, odd = x[..., 0::2], x[..., 1::2]
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)


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


class FeedForward(nn.Module):
    """SwiGLU, W2(silu(W1 x) · W3 x), or as in GPT-2 W2 gelu(W1 x), with the tanh approximation of GELU."""

    def __init__(self, size: ModelSize, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.w1 = Linear(size.d_model, size.d_ff, **factory)
        self.w2 = Linear(size.d_ff, size.d_model, **factory)
        self.w3 = Linear(size.d_model, size.d_ff, **factory) if size.feed_forward == "swiglu" else None

    def forward(self, x: Tensor) -> Tensor:
        with Range("feed_forward"):
            if self.w3 is None:
                down: Tensor = self.w2(functional.gelu(self.w1(x), approximate="tanh"))
            else:
                gate = self.w1(x)
                down = self.w2(gate * torch.sigmoid(gate) * self.w3(x))
            return down


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

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        mixed: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return mixed


class Transformer(nn.Module):
    """The whole model, on (batch, tokens). `positions`: those of the tokens, (tokens,); None: 0, 1, 2, ...
    `draws_random`: whether blocks draw random numbers, which checkpointing has to draw again."""

    def __init__(
        self,
        size: ModelSize,
        *,
        vocab_size: int,
        context_length: int,
        attention: AttentionFunction,
        checkpointing: str = "none",
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
        self.checkpointing = checkpointing
        self.draws_random = draws_random

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
