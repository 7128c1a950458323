"""A GPT whose kernels, optimizer and compiled code can each be made 1 to 2 % slower on purpose (small-changes.yaml).

``lmsweep run benchmarks/small-changes.yaml --store NAME``, twice, then
``lmsweep compare NAME --baseline model_args.change=copies --contrast model_args.change=none``.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

BROKEN = 3
"""Blocks of twelve in which the compiled graph breaks."""


class Block(nn.Module):
    def __init__(self, width: int, heads: int, *, copies: bool, breaks: bool) -> None:
        super().__init__()
        self.heads, self.copies, self.breaks = heads, copies, breaks
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.inner, self.outer = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, context, width = x.shape
        parts = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        q, k, v = (part.view(batch, context, self.heads, -1).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(batch, context, width))
        inner = self.inner(self.feed_forward_norm(x))
        cubic = 0.7978845608 * (inner + 0.044715 * inner * inner * inner)
        if self.breaks:
            torch._dynamo.graph_break()
        inner = 0.5 * inner * (1.0 + torch.tanh(cubic))
        return x + self.outer(inner.clone() if self.copies else inner)


class Gpt(nn.Module):
    def __init__(
        self, vocab_size: int, context_length: int, d_model: int, num_layers: int, num_heads: int, change: str = "none"
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(context_length, d_model)
        self.blocks = nn.ModuleList(
            Block(d_model, num_heads, copies=change == "copies", breaks=change == "break" and i < BROKEN)
            for i in range(num_layers)
        )
        self.norm, self.head = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class AnotherPass(torch.optim.AdamW):
    """Fused AdamW that reads and writes this share of the weights once more; 1.5 is all of them and half of them."""

    def __init__(self, parameters: Any, lr: float = 1e-3, share: float = 0.0) -> None:
        super().__init__(parameters, lr=lr, fused=True)
        self.share = share

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        weights = [weight for group in self.param_groups for weight in group["params"] if weight.grad is not None]
        if chosen := (2 * weights)[: round(self.share * len(weights))]:
            torch._foreach_mul_(chosen, 1.0)
        return loss
