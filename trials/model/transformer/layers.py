"""The layers of the transformer: projections, embeddings, norm, feed-forward, mixture of experts."""

import math
from typing import TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from lmsweep.trials.model.annotations import Range
from lmsweep.trials.spec.model_sizes import ModelSize

NORM_EPSILON = 1e-5
ROPE_THETA = 10_000.0

Device = torch.device | str


class Factory(TypedDict):
    """The device and type of new weights."""

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
        return rms_norm(x, self.weight)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    with Range("norm"):
        wide = at_least_float32(x)
        normed = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + NORM_EPSILON)
        return (normed * weight).to(x.dtype)


class RotaryEmbedding(nn.Module):
    """Rotates each even/odd pair of a query or key by an angle that grows with its position (RoFormer). All layers
    share one instance, so that its tables are in memory once. The tables are at least float32."""

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


class FeedForward(nn.Module):
    """SwiGLU, W2(silu(W1 x) · W3 x), or, as in GPT-2, W2 gelu(W1 x) with GELU's tanh approximation."""

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


class Experts(nn.Module):
    """A mixture of experts: each token is processed by a few of the feed-forward layers.

    Here experts choose tokens (Zhou et al. 2022): each takes those with the highest scores for it, all equally many. So
    all shapes are static, no step waits for the host, and the time is that of perfectly balanced routing.
    """

    def __init__(self, size: ModelSize, *, device: Device, dtype: torch.dtype) -> None:
        super().__init__()
        assert size.num_experts is not None, "the size has experts"
        self.active = size.active_experts or 1
        self.gated = size.feed_forward == "swiglu"
        experts, std = size.num_experts, (2 / (size.d_model + size.d_ff)) ** 0.5

        def weights(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype).normal_(std=std))

        self.router = weights(experts, size.d_model)
        self.w1 = weights(experts, size.d_model, size.d_ff)
        self.w2 = weights(experts, size.d_ff, size.d_model)
        self.w3 = weights(experts, size.d_model, size.d_ff) if self.gated else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, d_model) to the same."""
        with Range("feed_forward"):
            tokens = x.flatten(0, -2)  # (all tokens, d_model)
            scores = (tokens @ self.router.T).softmax(dim=-1)  # (all tokens, experts)
            each = math.ceil(len(tokens) * self.active / len(self.router))
            weight, chosen = scores.T.topk(each, dim=-1)  # (experts, each)
            taken = tokens[chosen]  # (experts, each, d_model)
            hidden = torch.bmm(taken, self.w1)
            if self.w3 is None:
                hidden = functional.gelu(hidden, approximate="tanh")
            else:
                hidden = hidden * torch.sigmoid(hidden) * torch.bmm(taken, self.w3)
            made = torch.bmm(hidden, self.w2) * weight[..., None]
            mixed = torch.zeros_like(tokens, dtype=made.dtype)
            return mixed.index_add(0, chosen.flatten(), made.flatten(0, 1)).view_as(x).to(x.dtype)
