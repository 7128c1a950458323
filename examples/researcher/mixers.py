"""A research question: what does replacing attention by a causal convolution cost and save?"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.into(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(-2))


class Convolution(nn.Module):
    """Gated depthwise convolution over the last `kernel` tokens."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.into, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.mix = nn.Conv1d(width, width, kernel, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.into(x).chunk(2, dim=-1)
        mixed = self.mix(functional.pad(value.transpose(1, 2), (self.kernel - 1, 0))).transpose(1, 2)
        return self.out(mixed * functional.silu(gate))


class Layer(nn.Module):
    def __init__(self, width: int, mixer: nn.Module) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mixer = mixer
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class MixerLM(nn.Module):
    """A language model whose layers mix tokens by attention or by convolution."""

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        mixer: str = "attention",
        kernel: int = 4,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Parameter(torch.zeros(context_length, d_model))
        make = {"attention": lambda: Attention(d_model, num_heads), "convolution": lambda: Convolution(d_model, kernel)}
        self.layers = nn.ModuleList(Layer(d_model, make[mixer]()) for _ in range(num_layers))
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
