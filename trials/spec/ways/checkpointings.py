"""Activation checkpointing: what backward computes again. To add a way, add a row to CHECKPOINTINGS.

Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; selective checkpointing after Korthikanti et al.
2022, "Reducing Activation Recomputation in Large Transformer Models".
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Recomputed(NamedTuple):
    """Forward passes of blocks whose matrix products backward computes again: what HFU counts.

    A pass ends early if nothing needs the block's output: backward needs no more than the input of the last product.
    Of four blocks in two groups, each group runs from its saved input: 4 passes, and the last of each group ends early
    (4, 2). Nested, each group first runs up to the input of its last block, which takes 2 passes; then each block runs
    from its own input, and ends early (2 + 4, 4).
    """

    blocks: int
    ended_early: int
    """How many stop before the block's last matrix product. Compiled: none."""


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
            return Recomputed(blocks=(num_layers - groups) + num_layers, ended_early=num_layers)
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
