"""The named model sizes. To add a size, add a row to SIZES."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """The dimensions of a transformer."""

    d_model: int
    """Width of the residual stream."""
    d_ff: int
    """Width of the feed-forward layer."""
    num_layers: int
    """Number of transformer blocks."""
    num_heads: int
    """Attention heads per block. Divides d_model."""


def _size(d_model: int, d_ff: int, num_layers: int, num_heads: int) -> ModelSize:
    return ModelSize(d_model=d_model, d_ff=d_ff, num_layers=num_layers, num_heads=num_heads)


# small to 2.7b are from Stanford CS336's systems assignment of 2025, the last two from that of 2026.
SIZES: dict[str, ModelSize] = {
    "tiny": _size(128, 512, 2, 4),
    "small": _size(768, 3072, 12, 12),
    "medium": _size(1024, 4096, 24, 16),
    "large": _size(1280, 5120, 36, 20),
    "xl": _size(1600, 6400, 48, 25),
    "2.7b": _size(2560, 10240, 32, 32),
    "xl-2026": _size(2560, 10240, 32, 32),
    "10b-2026": _size(4608, 12288, 50, 36),
}

# A size with two names is one combination. Results carry the first name in the table.
_NAMES: dict[ModelSize, str] = {size: name for name, size in reversed(SIZES.items())}


def size_name(size: ModelSize) -> str:
    """Return the name of these dimensions in SIZES, else one made from the dimensions: `d768-f3072-l12-h12`."""
    from_dimensions = f"d{size.d_model}-f{size.d_ff}-l{size.num_layers}-h{size.num_heads}"
    return _NAMES.get(size, from_dimensions)
