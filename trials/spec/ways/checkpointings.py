"""Activation checkpointing: what backward computes again. To add a way, add a row to CHECKPOINTINGS.

Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; selective checkpointing after Korthikanti et al.
2022, "Reducing Activation Recomputation in Large Transformer Models".
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Recomputed(NamedTuple):
    """Forward passes of blocks whose matrix products backward computes again: what HFU counts."""

    blocks: int
    ended_early: int
    """How many stop before the block's last matrix product, as its input is the last tensor saved. Compiled: none."""


@dataclass(frozen=True, kw_only=True)
class Checkpointing:
    group: int | Literal["sqrt"] | None = None
    """Blocks that are computed again at once; sqrt: about the square root of all; None: none are."""
    nested: bool = False
    """Whether a group that is computed again saves the input of each block, from which each is computed again."""
    keeps_products: bool = False
    """Whether the results of PRODUCTS are kept."""

    @property
    def grows_with_layers(self) -> bool:
        """Whether each further layer adds the same to the memory of a step."""
        return self.group in (None, 1)

    def group_size(self, num_layers: int) -> int | None:
        return round(math.sqrt(num_layers)) if self.group == "sqrt" else self.group

    def recomputed(self, num_layers: int) -> Recomputed:
        size = self.group_size(num_layers)
        if size is None or self.keeps_products:  # with kept products it computes only other operators again
            return Recomputed(blocks=0, ended_early=0)
        groups = math.ceil(num_layers / size)
        if self.nested:
            # Each group runs again up to the input of its last block, then each block by itself.
            return Recomputed(blocks=2 * num_layers - groups, ended_early=num_layers)
        return Recomputed(blocks=num_layers, ended_early=groups)


CHECKPOINTINGS: dict[str, Checkpointing] = {
    "none": Checkpointing(),
    "block": Checkpointing(group=1),
    "sqrt": Checkpointing(group="sqrt"),
    "nested": Checkpointing(group="sqrt", nested=True),
    "selective": Checkpointing(group=1, keeps_products=True),
}
"""Word of the field `checkpointing` -> what it does. A number of blocks is another value."""
TRIED_CHECKPOINTINGS = ("none", "block")
"""The ways that are tried where none is stated."""

PRODUCTS = (
    *("mm", "bmm", "addmm", "baddbmm", "_scaled_mm"),
    *(f"_scaled_dot_product_{kernel}_attention" for kernel in ("flash", "efficient", "cudnn")),
    *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_fused_attention_overrideable"),
)
"""PyTorch's matrix products, and attention as one kernel."""


def checkpointing_of(word: str) -> Checkpointing:
    """Return what a word or a number of blocks does; a word of another version's store does as `block`."""
    return CHECKPOINTINGS.get(word) or Checkpointing(group=int(word) if word.isdecimal() else 1)
