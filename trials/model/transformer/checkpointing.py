"""What forward saves for backward: activation checkpointing of the transformer's blocks.

Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; selective checkpointing after Korthikanti et al.
2022, "Reducing Activation Recomputation in Large Transformer Models".
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from lmsweep.trials.machine.torch_private import (
    CUDNN,
    EFFICIENT,
    FLASH,
    FLASH_ON_CPU,
    OVERRIDEABLE,
    SCALED_MM,
)
from lmsweep.trials.spec.ways.checkpoint_groups import group_size

_ATEN = torch.ops.aten
PRODUCTS = [
    *(_ATEN.mm.default, _ATEN.bmm.default, _ATEN.addmm.default, _ATEN.baddbmm.default, SCALED_MM),
    *(FLASH, FLASH_ON_CPU, EFFICIENT, CUDNN, OVERRIDEABLE),
]
"""The operators whose results `selective` keeps: matrix products, and attention as one kernel."""

Run = Callable[[Tensor], Tensor]


def run_blocks(blocks: Iterable[Run], x: Tensor) -> Tensor:
    for block in blocks:
        x = block(x)
    return x


def grows_with_layers(checkpointing: str) -> bool:
    """Return whether each further layer adds the same to the memory of a step."""
    return checkpointing in ("none", "block", "selective")


def run_checkpointed(blocks: Sequence[nn.Module], x: Tensor, checkpointing: str) -> Tensor:
    """Apply the blocks in order to (batch, tokens, d_model); of each group of blocks, save only the input. With
    `nested`, a group that is recomputed saves only the input of each of its blocks, which are then recomputed one by
    one. With `selective`, the results of PRODUCTS are saved as well and not computed again."""
    size = group_size(checkpointing, len(blocks))
    if size is None:
        return run_blocks(blocks, x)
    for first in range(0, len(blocks), size):
        group: list[Run] = list(blocks[first : first + size])
        if checkpointing == "nested":
            group = [partial(_save_input, block) for block in group]
        if checkpointing == "selective":
            x = _save_input(
                partial(run_blocks, group), x, context_fn=partial(create_selective_checkpoint_contexts, PRODUCTS)
            )
        else:
            x = _save_input(partial(run_blocks, group), x)
    return x


def _save_input(run: Run, x: Tensor, **options: Any) -> Tensor:
    # The model draws no random numbers, so there is no state to restore.
    result: Tensor = checkpoint(run, x, use_reentrant=False, preserve_rng_state=False, **options)
    return result
