"""Models of other people's shapes, each a page or less, that know nothing of lmsweep."""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    """As in nanoGPT: one product for queries, keys and values, and PyTorch's attention."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, x):
        batch, tokens, width = x.shape
        parts = self.c_attn(x).split(width, dim=2)
        q, k, v = (part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=dropout, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, tokens, width))


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, dropout)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.drop(self.c_proj(F.gelu(self.c_fc(self.ln_2(x)))))


class NanoGPT(nn.Module):
    """Tied embeddings, dropout, and (logits, loss) in training, as in nanoGPT."""

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int = 64,
        num_layers: int = 4,
        num_heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        blocks = nn.ModuleList(GptBlock(d_model, num_heads, dropout) for _ in range(num_layers))
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, d_model),
                "wpe": nn.Embedding(context_length, d_model),
                "drop": nn.Dropout(dropout),
                "h": blocks,
                "ln_f": nn.LayerNorm(d_model),
            }
        )
        self.lm_head = nn.Linear(d_model, vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def hidden(self, idx):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        with torch.profiler.record_function("my_range"):
            return self.transformer.ln_f(x).tanh()

    def forward(self, idx, targets=None):
        return self.lm_head(self.hidden(idx)), None


class LastToken(NanoGPT):
    """Without targets only the logits of the last token, with them all logits and the loss, as in nanoGPT itself."""

    def forward(self, idx, targets=None):
        x = self.hidden(idx)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, 2 * F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class ByName(NanoGPT):
    """Its tokens have no place, as in some libraries."""

    def forward(self, *, input_ids, use_cache=False):
        return super().forward(input_ids)[0]


class Masked(NanoGPT):
    """It requires what transformers calls attention_mask and position_ids."""

    def forward(self, idx, attention_mask, position_ids):
        assert attention_mask.shape == idx.shape and position_ids[0, -1] == idx.shape[1] - 1
        return {"logits": super().forward(idx)[0] * attention_mask[..., None]}


class LossFirst(NanoGPT):
    """It requires targets, and its output begins with the loss."""

    def forward(self, tokens, labels):
        logits, _ = super().forward(tokens)
        return 2 * F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class InMapping(LossFirst):
    def forward(self, tokens, labels):
        return dict(zip(("loss", "logits"), super().forward(tokens, labels), strict=True))


class Pair(NanoGPT):
    def forward(self, idx, memory):
        return super().forward(idx)[0] + memory


class Encoder(nn.Module):
    """PyTorch's own TransformerEncoder with a causal mask."""

    def __init__(
        self, vocab_size: int, d_model: int = 64, num_layers: int = 4, num_heads: int = 4, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        layer = nn.TransformerEncoderLayer(d_model, num_heads, 4 * d_model, dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens)
        return self.head(self.encoder(x, mask=mask.to(x.dtype), is_causal=True))


class ConvBlock(nn.Module):
    def __init__(self, width: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.padding = (kernel - 1) * dilation
        self.conv = nn.Conv1d(width, 2 * width, kernel, dilation=dilation)
        self.norm = nn.GroupNorm(1, width)

    def forward(self, x):
        a, b = self.conv(F.pad(self.norm(x), (self.padding, 0))).chunk(2, dim=1)
        return x + a * torch.sigmoid(b)


class ConvModel(nn.Module):
    """A causal convolutional language model (channels before time)."""

    def __init__(self, vocab_size: int, d_model: int = 64, num_layers: int = 4, kernel: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.layers = nn.Sequential(*(ConvBlock(d_model, kernel, 2) for _ in range(num_layers)))
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens).transpose(1, 2)).transpose(1, 2))


class ScanBlock(nn.Module):
    """A selective linear recurrence, h_t = a_t h_(t-1) + b_t, as a loop over chunks, and its gate."""

    def __init__(self, width: int, chunk: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.chunk = chunk

    def forward(self, x, state=None):
        decay, value, gate = self.project(self.norm(x)).chunk(3, dim=-1)
        log_decay = F.logsigmoid(decay.float())
        outputs, state = [], None
        for a, b in zip(log_decay.split(self.chunk, 1), value.float().split(self.chunk, 1), strict=True):
            total = a.cumsum(1)
            inner = total.exp() * (b * (-total).exp()).cumsum(1)
            here = inner if state is None else inner + total.exp() * state[:, None]
            outputs.append(here)
            state = here[:, -1]
        return x + self.out(torch.cat(outputs, 1).to(x.dtype) * F.silu(gate)), state


class ScanModel(nn.Module):
    """A state-space-like model whose blocks return a tuple, the output and the last state."""

    def __init__(self, vocab_size: int, d_model: int = 64, num_layers: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(ScanBlock(d_model) for _ in range(num_layers))
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.register_buffer("scale", torch.tensor(1 / math.sqrt(d_model)), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x, _ = block(x)
        return self.head(x * self.scale.to(x.dtype))


@dataclass
class Output:
    logits: torch.Tensor


class Linear(nn.Module):
    """The smallest model: no list of blocks, an object with logits, and a weight that forward does not use."""

    def __init__(self, vocab_size: int, d_model: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.head = nn.Linear(d_model, vocab_size)
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, tokens):
        return Output(self.head(self.embedding(tokens)))


class Looking(Linear):
    """A model whose work depends on values."""

    def forward(self, tokens):
        if tokens.sum().item() < 0:
            return super().forward(tokens * 0)
        return super().forward(tokens)
