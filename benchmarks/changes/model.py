"""A GPT whose argument `change` makes one change on purpose; changes.yaml measures each beside `none`."""

import contextlib

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

HOST_BYTES = 256 * 2**20
HOST_LOOPS = 1_000_000


class Norm(nn.LayerNorm):
    def __init__(self, width: int, change: str) -> None:
        super().__init__(width)
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        if self.change != "written_norm":
            return super().forward(x)
        x = x.float()
        centered = x - x.mean(-1, keepdim=True)
        return centered * torch.rsqrt((centered * centered).mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, change: str) -> None:
        super().__init__()
        self.heads, self.change = heads, change
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, context, width = x.shape
        if self.change == "three_products":
            parts = [functional.linear(x, weight) for weight in self.qkv.weight.chunk(3)]
        else:
            parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.view(batch, context, self.heads, -1).transpose(1, 2) for part in parts)
        if self.change == "rotated":
            q, k = (torch.cat([-y[..., 1::2], y[..., ::2]], -1) * 0.5 + y * 0.5 for y in (q, k))
        y = self._attend(q, k, v)
        return self.output(y.transpose(1, 2).reshape(batch, context, width))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        context = q.shape[2]
        if self.change == "written_attention":
            scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
            future = torch.ones(context, context, dtype=torch.bool, device=q.device).triu(1)
            return scores.masked_fill(future, -torch.inf).softmax(-1) @ v
        if self.change == "masked_attention":
            past = torch.ones(context, context, dtype=torch.bool, device=q.device).tril()
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=past)
        kernel = SDPBackend.FLASH_ATTENTION if self.change == "flash_attention" else None
        with sdpa_kernel(kernel) if kernel else contextlib.nullcontext():
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class FeedForward(nn.Module):
    def __init__(self, width: int, change: str) -> None:
        super().__init__()
        self.change = change
        inner = width * (6 if change == "wider" else 4)
        self.inner = nn.Linear(width, inner, bias=False)
        self.output = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        if self.change in ("written_gelu", "graph_breaks"):
            inner = 0.7978845608 * (x + 0.044715 * x * x * x)
            if self.change == "graph_breaks":
                torch._dynamo.graph_break()
            x = 0.5 * x * (1.0 + torch.tanh(inner))
        else:
            x = functional.gelu(x, approximate="tanh")
        if self.change == "dropout":
            x = functional.dropout(x, 0.1)
        if self.change == "extra_copies":
            x = x.clone().clone()
        return self.output(x)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, change: str) -> None:
        super().__init__()
        self.change, self.in_fp32 = change, False
        self.attention_norm, self.attention = Norm(width, change), Attention(width, heads, change)
        self.feed_forward_norm, self.feed_forward = Norm(width, change), FeedForward(width, change)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False) if self.in_fp32 else contextlib.nullcontext():
            return self._forward(x.float() if self.in_fp32 else x)

    def _forward(self, x: Tensor) -> Tensor:
        if self.change == "not_contiguous":
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Gpt(nn.Module):
    def __init__(
        self, vocab_size: int, context_length: int, d_model: int, num_layers: int, num_heads: int, change: str = "none"
    ) -> None:
        super().__init__()
        self.change = change
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(context_length, d_model)
        self.blocks = nn.ModuleList(Block(d_model, num_heads, change) for _ in range(num_layers))
        self.blocks[num_layers // 2].in_fp32 = change == "layer_in_fp32"
        self.norm, self.head = Norm(d_model, "none"), nn.Linear(d_model, vocab_size, bias=False)
        self.data: Tensor | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        if self.change == "no_prefetch":
            if self.data is None:
                self.data = torch.zeros(HOST_BYTES, dtype=torch.uint8, device="cpu", pin_memory=tokens.is_cuda)
            self.data.to(tokens.device)
        if self.change == "waits_for_host":
            sum(range(HOST_LOOPS))
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
