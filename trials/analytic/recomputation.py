"""What activation checkpointing computes again in backward, in FLOPs.

MFU counts the FLOPs that the model needs, HFU also those that are computed again (Chowdhery et al., "PaLM", 2022,
appendix B; Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, section 6).
"""

import math
from typing import NamedTuple

from lmsweep.trials.analytic.formulas import Number
from lmsweep.trials.spec.ways.checkpoint_groups import group_size


class Recomputed(NamedTuple):
    """Forward passes of blocks that backward runs again."""

    blocks: int
    ended_early: int
    """How many leave out the block's last matrix product, whose input is the last saved tensor. Compiled: none."""


def recomputed_blocks(checkpointing: str, num_layers: int) -> Recomputed:
    """Return what backward computes again. Nothing with `selective`, which keeps the results of matrix products."""
    size = group_size(checkpointing, num_layers)
    if size is None or checkpointing == "selective":
        return Recomputed(blocks=0, ended_early=0)
    groups = math.ceil(num_layers / size)
    if checkpointing == "nested":
        # Each group runs again up to the input of its last block, then each block by itself.
        return Recomputed(blocks=2 * num_layers - groups, ended_early=num_layers)
    return Recomputed(blocks=num_layers, ended_early=groups)


def recomputed_flops(
    *,
    blocks: Number,
    ended_early: Number,
    block: Number,
    tokens: Number,
    d_model: Number,
    d_ff: Number,
    router: Number,
    compiled_blocks: Number,
) -> Number:
    """Return the FLOPs that backward computes again, with blocks and ended_early of `recomputed_blocks`. block: FLOPs
    of one block's forward. router, compiled_blocks: 1 if blocks have experts, or are compiled one by one."""
    return blocks * block - ended_early * (1 - router) * (1 - compiled_blocks) * 2 * tokens * d_ff * d_model
