"""The named model sizes. To add a size, add a row to SIZES."""

from dataclasses import MISSING, dataclass, fields
from typing import Literal

FeedForward = Literal["swiglu", "gelu"]


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    d_model: int
    d_ff: int
    """Width of the feed-forward layer; with experts, of each expert."""
    num_layers: int
    num_heads: int
    """Attention heads per block. Divides d_model, unless `d_head` is given."""
    num_kv_heads: int | None = None
    """Heads of keys and values (grouped-query attention). Divides num_heads; None: as many."""
    d_head: int | None = None
    """Width of a head; None: d_model / num_heads."""
    qk_norm: bool = False
    """Whether queries and keys are normalised per head."""
    feed_forward: FeedForward = "swiglu"
    """swiglu has three matrices, gelu two."""
    num_experts: int | None = None
    """Experts per block (mixture of experts); None: one feed-forward layer."""
    active_experts: int | None = None
    """Experts that process a token, on average; None: one."""
    tied_head: bool = False

    @property
    def head_width(self) -> int:
        return self.d_head or self.d_model // self.num_heads

    @property
    def terms(self) -> dict[str, int]:
        """Arguments of `lmsweep.trials.analytic.formulas`, except the vocabulary size."""
        return {
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "num_layers": self.num_layers,
            "query_width": self.num_heads * self.head_width,
            "key_width": (self.num_kv_heads or self.num_heads) * self.head_width,
            "norm_width": 2 * self.head_width * self.qk_norm,
            "matrices": 3 if self.feed_forward == "swiglu" else 2,
            "experts": self.num_experts or 1,
            "active_experts": (self.active_experts or 1) if self.num_experts else 1,
            "router": int(self.num_experts is not None),
            "vocabulary_matrices": 2 - self.tied_head,
        }


DIMENSIONS: tuple[str, ...] = tuple(field.name for field in fields(ModelSize))

SHAPE_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(ModelSize) if field.default is not MISSING)
"""The optional dimensions, by which newer models differ from the plain shape."""

PLAIN_DIMENSIONS: tuple[str, ...] = tuple(name for name in DIMENSIONS if name not in SHAPE_FIELDS)
"""The dimensions that every model has."""


def _size(d_model: int, d_ff: int, num_layers: int, num_heads: int) -> ModelSize:
    return ModelSize(d_model=d_model, d_ff=d_ff, num_layers=num_layers, num_heads=num_heads)


# small to 2.7b are from Stanford CS336's systems assignment of 2025, the next three from that of 2026 (the last is the
# model of its leaderboard). The others have
# the dimensions of the published models (the config.json of each), with this program's norms, biases and embeddings.
SIZES: dict[str, ModelSize] = {
    "tiny": _size(128, 512, 2, 4),
    "small": _size(768, 3072, 12, 12),
    "medium": _size(1024, 4096, 24, 16),
    "large": _size(1280, 5120, 36, 20),
    "xl": _size(1600, 6400, 48, 25),
    "2.7b": _size(2560, 10240, 32, 32),
    "xl-2026": _size(2560, 10240, 32, 32),
    "10b-2026": _size(4608, 12288, 50, 36),
    "8b-2026": _size(4096, 11008, 34, 32),
    "gpt2": ModelSize(d_model=768, d_ff=3072, num_layers=12, num_heads=12, feed_forward="gelu", tied_head=True),
    "gpt2-xl": ModelSize(d_model=1600, d_ff=6400, num_layers=48, num_heads=25, feed_forward="gelu", tied_head=True),
    "tinyllama-1.1b": ModelSize(d_model=2048, d_ff=5632, num_layers=22, num_heads=32, num_kv_heads=4),
    "llama-2-7b": _size(4096, 11008, 32, 32),
    "llama-2-13b": _size(5120, 13824, 40, 40),
    "llama-3.2-1b": ModelSize(
        d_model=2048, d_ff=8192, num_layers=16, num_heads=32, num_kv_heads=8, tied_head=True
    ),
    "llama-3.2-3b": ModelSize(
        d_model=3072, d_ff=8192, num_layers=28, num_heads=24, num_kv_heads=8, d_head=128, tied_head=True
    ),
    "llama-3.1-8b": ModelSize(d_model=4096, d_ff=14336, num_layers=32, num_heads=32, num_kv_heads=8),
    "qwen3-0.6b": ModelSize(
        d_model=1024, d_ff=3072, num_layers=28, num_heads=16, num_kv_heads=8, d_head=128, qk_norm=True, tied_head=True
    ),
    "qwen3-8b": ModelSize(
        d_model=4096, d_ff=12288, num_layers=36, num_heads=32, num_kv_heads=8, d_head=128, qk_norm=True
    ),
    "mixtral-8x7b": ModelSize(
        d_model=4096, d_ff=14336, num_layers=32, num_heads=32, num_kv_heads=8, num_experts=8, active_experts=2
    ),
    "qwen3-30b-a3b": ModelSize(
        d_model=2048, d_ff=768, num_layers=48, num_heads=32, num_kv_heads=4, d_head=128, qk_norm=True,
        num_experts=128, active_experts=8,
    ),
}  # fmt: skip

VOCABULARIES: dict[str, int] = {
    "8b-2026": 151_936,
    "gpt2": 50_257,
    "gpt2-xl": 50_257,
    "tinyllama-1.1b": 32_000,
    "llama-2-7b": 32_000,
    "llama-2-13b": 32_000,
    "llama-3.2-1b": 128_256,
    "llama-3.2-3b": 128_256,
    "llama-3.1-8b": 128_256,
    "qwen3-0.6b": 151_936,
    "qwen3-8b": 151_936,
    "mixtral-8x7b": 32_000,
    "qwen3-30b-a3b": 151_936,
}
"""Vocabulary sizes of published models. A sweep's `vocab_size` takes precedence."""

# A size with two names is one combination. Results carry the first name in the table.
_NAMES: dict[ModelSize, str] = {size: name for name, size in reversed(SIZES.items())}


def size_name(size: ModelSize) -> str:
    """Return the name of these dimensions in SIZES, else one made from the dimensions: `d768-f3072-l12-h12`."""
    if size in _NAMES:
        return _NAMES[size]
    parts = [f"d{size.d_model}", f"f{size.d_ff}", f"l{size.num_layers}", f"h{size.num_heads}"]
    parts += [f"kv{size.num_kv_heads}"] if size.num_kv_heads else []
    parts += [f"dh{size.d_head}"] if size.d_head else []
    parts += ["qknorm"] if size.qk_norm else []
    parts += [size.feed_forward] if size.feed_forward != "swiglu" else []
    parts += [f"e{size.num_experts}", f"a{size.active_experts or 1}"] if size.num_experts else []
    parts += ["tied"] if size.tied_head else []
    return "-".join(parts)
