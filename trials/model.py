"""The model: a pre-norm transformer with RMSNorm, rotary embeddings, SwiGLU and an untied head, without biases.

Its operations are those of the models behind the published tables (Stanford CS336), one by one, so that its memory and
its kernels compare with theirs: what autograd saves is counted in closed form by `trials.formulas`. Weights are made
on the device.
"""

import torch
from torch import Tensor, nn

from trials.attention import AttentionFunction
from trials.sizes import ModelSize

NORM_EPSILON = 1e-5
ROPE_THETA = 10_000.0
WEIGHT_STD = 0.02


class Linear(nn.Module):
    """y = x Wᵀ."""

    def __init__(self, d_in: int, d_out: int, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype).normal_(std=WEIGHT_STD))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class Embedding(nn.Module):
    """A row of the weights for each token."""

    def __init__(self, vocab_size: int, d_model: int, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model, device=device, dtype=dtype).normal_())

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens]


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + ε) · weight, in float32 whatever x is."""

    def __init__(self, d_model: int, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.dtype != torch.float64 else x
        normed = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + NORM_EPSILON)
        return (normed * self.weight).to(x.dtype)


class RotaryEmbedding(nn.Module):
    """Turns each even/odd pair of a query or key by an angle that grows with its position (RoFormer)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, d_head: int, context_length: int, device: str) -> None:
        super().__init__()
        frequency = ROPE_THETA ** -(torch.arange(0, d_head, 2, device=device) / d_head)
        angle = torch.arange(context_length, device=device)[:, None] * frequency
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., context, head dimension)."""
        even, odd = x[..., 0::2], x[..., 1::2]
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)


class SelfAttention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(
        self, size: ModelSize, rope: RotaryEmbedding, attention: AttentionFunction, device: str, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.num_heads = size.num_heads
        self.rope = rope
        self.attention = attention
        self.query = Linear(size.d_model, size.d_model, device, dtype)
        self.key = Linear(size.d_model, size.d_model, device, dtype)
        self.value = Linear(size.d_model, size.d_model, device, dtype)
        self.output = Linear(size.d_model, size.d_model, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self._split_heads(project(x)) for project in (self.query, self.key, self.value))
        mixed = self.attention(self.rope(q), self.rope(k), v)
        return self.output(mixed.transpose(-3, -2).flatten(-2))

    def _split_heads(self, x: Tensor) -> Tensor:
        """(batch, context, d_model) -> (batch, heads, context, head dimension)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)


class FeedForward(nn.Module):
    """SwiGLU: W2(silu(W1 x) · W3 x)."""

    def __init__(self, size: ModelSize, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.w1 = Linear(size.d_model, size.d_ff, device, dtype)
        self.w2 = Linear(size.d_ff, size.d_model, device, dtype)
        self.w3 = Linear(size.d_model, size.d_ff, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.w1(x)
        return self.w2(gate * torch.sigmoid(gate) * self.w3(x))


class Block(nn.Module):
    """Attention and feed-forward, each behind its norm and beside the residual stream."""

    def __init__(
        self, size: ModelSize, rope: RotaryEmbedding, attention: AttentionFunction, device: str, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(size.d_model, device, dtype)
        self.attention = SelfAttention(size, rope, attention, device, dtype)
        self.feed_forward_norm = RMSNorm(size.d_model, device, dtype)
        self.feed_forward = FeedForward(size, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    """Tokens (batch, context) to logits (batch, context, vocab_size)."""

    def __init__(
        self,
        size: ModelSize,
        *,
        vocab_size: int,
        context_length: int,
        attention: AttentionFunction,
        device: str,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        rope = RotaryEmbedding(size.d_model // size.num_heads, context_length, device)
        self.token_embedding = Embedding(vocab_size, size.d_model, device, dtype)
        self.blocks = nn.ModuleList(Block(size, rope, attention, device, dtype) for _ in range(size.num_layers))
        self.final_norm = RMSNorm(size.d_model, device, dtype)
        self.head = Linear(size.d_model, vocab_size, device, dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.final_norm(x))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean negative log-likelihood of the targets, as log-sum-exp minus the target's logit, in float32.

    logits: (batch, context, vocab_size); targets: (batch, context) token indices; returns a scalar.
    """
    wide = logits.float() if logits.dtype != torch.float64 else logits
    # The maximum only keeps the exponentials in range; no gradient needs to flow through it.
    shifted = wide - wide.detach().max(dim=-1, keepdim=True).values
    log_sum = shifted.exp().sum(dim=-1).log()
    target = shifted.gather(-1, targets[..., None]).squeeze(-1)
    return (log_sum - target).mean()
