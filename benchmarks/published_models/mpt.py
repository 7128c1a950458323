"""MPT as LLM-Foundry trains it: learned positions, LayerNorm without bias, one projection, GELU, tied embeddings."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = (nn.LayerNorm(width, bias=False) for _ in range(2))
        self.wqkv, self.out_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up_proj, self.down_proj = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.wqkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out_proj(attended.transpose(1, 2).flatten(-2))
        return x + self.down_proj(functional.gelu(self.up_proj(self.norm_2(x))))


class MPT(nn.Module):
    def __init__(self, vocabulary: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm_f = nn.LayerNorm(width, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm_f(x), self.wte.weight)


def build(vocab_size: int, context_length: int, *, width: int, layers: int, heads: int) -> MPT:
    return MPT(vocab_size, context_length, width, layers, heads)
