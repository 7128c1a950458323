"""What forward saves for backward: activation checkpointing of the transformer's blocks."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from lmsweep.trials.spec.ways.checkpointings import PRODUCTS, checkpointing_of

Run = Callable[[Tensor], Tensor]
_KEPT = [getattr(torch.ops.aten, name).default for name in PRODUCTS]
_KEEP_PRODUCTS = partial(create_selective_checkpoint_contexts, _KEPT)


def run_blocks(blocks: Iterable[Run], x: Tensor) -> Tensor:
    for block in blocks:
        x = block(x)
    return x


def run_checkpointed(blocks: Sequence[nn.Module], x: Tensor, checkpointing: str, *, draws_random: bool) -> Tensor:
    """Apply the blocks in order to (batch, tokens, d_model); of each group of blocks, save only the input. With
    `nested`, a group that is recomputed saves only the input of each of its blocks, which are then recomputed one by
    one. With `selective`, the results of PRODUCTS are saved as well and not computed again.
    draws_random: whether blocks draw random numbers; else the generators' states need not be saved."""
    way = checkpointing_of(checkpointing)
    size = way.group_size(len(blocks))
    if size is None:
        return run_blocks(blocks, x)
    save_input = partial(checkpoint, use_reentrant=False, preserve_rng_state=draws_random)
    of_group = partial(save_input, context_fn=_KEEP_PRODUCTS) if way.keeps_products else save_input
    for first in range(0, len(blocks), size):
        group: list[Run] = list(blocks[first : first + size])
        if way.nested:
            group = [partial(save_input, block) for block in group]
        x = of_group(partial(run_blocks, group), x)
    return x
