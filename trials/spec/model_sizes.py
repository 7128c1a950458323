"""The named model sizes. To add a size, add a row to model_sizes.csv."""

import csv
import json
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal

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
        """Arguments of `lmsweep.trials.analytic.formulas`, except the vocabulary size. router: 1 if there is one."""
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


# small to 2.7b are from Stanford CS336's systems assignment of 2025, xl-2026 to 8b-2026 from that of 2026 (the last is
# the model of its leaderboard). The others have the dimensions of the published models (the config.json of each), with
# this program's norms, biases and embeddings. Cells are JSON, such as `true`; an empty one has its default.
with (Path(__file__).parent / "model_sizes.csv").open(newline="", encoding="utf-8") as _file:
    _ROWS = list(csv.DictReader(_file))


def _size(row: dict[str, str]) -> ModelSize:
    given: dict[str, Any] = {name: row[name] for name in DIMENSIONS if row[name]}
    return ModelSize(**{name: one if name == "feed_forward" else json.loads(one) for name, one in given.items()})


SIZES: dict[str, ModelSize] = {row["name"]: _size(row) for row in _ROWS}

VOCABULARIES: dict[str, int] = {row["name"]: int(row["vocab_size"]) for row in _ROWS if row["vocab_size"]}
"""Vocabulary sizes of published models. A sweep's `vocab_size` takes precedence."""

# A size with two names is one combination. Results carry the first name in the table, which is set last here.
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
