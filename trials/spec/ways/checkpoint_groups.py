"""Activation checkpointing: how many blocks backward recomputes at once, and the PyTorch that does it."""

import math

from lmsweep.trials.spec.ways.pytorch_lines import Recipe


def group_size(checkpointing: str, num_layers: int) -> int | None:
    """Return the number of blocks that backward recomputes at once, or None without checkpointing."""
    if checkpointing == "none":
        return None
    if checkpointing in ("sqrt", "nested"):
        return round(math.sqrt(num_layers))
    return int(checkpointing) if checkpointing.isdecimal() else 1


def checkpointing_recipe(checkpointing: str, num_layers: int) -> Recipe:
    """Return the PyTorch that checkpoints a model of so many layers; nothing without checkpointing."""
    size = group_size(checkpointing, num_layers)
    if size is None:
        return Recipe()
    selects = checkpointing == "selective"
    blocks = "[Checkpointed([block]) for block in model.blocks]" if checkpointing == "nested" else "list(model.blocks)"
    return Recipe(
        imports=(
            "from functools import partial" if selects else "",
            "from torch.utils.checkpoint import checkpoint",
            "from torch.utils.checkpoint import create_selective_checkpoint_contexts" if selects else "",
        ),
        lines=(
            *(_PRODUCTS if selects else ()),
            *_CHECKPOINTED,
            "        return checkpoint(",
            "            self.blocks, x, use_reentrant=False, preserve_rng_state=False,",
            *(("            context_fn=keeping_products,",) if selects else ()),
            "        )",
            "",
            "",
            f"blocks = {blocks}",
            f"groups = [blocks[first : first + {size}] for first in range(0, len(blocks), {size})]",
            "model.blocks = torch.nn.ModuleList(Checkpointed(group) for group in groups)",
        ),
    )


_PRODUCTS = (
    "aten = torch.ops.aten",
    "products = [",
    "    aten.mm.default, aten.bmm.default, aten.addmm.default,",
    "    aten.baddbmm.default, aten._scaled_mm.default,",
    "    aten._scaled_dot_product_flash_attention.default,",
    "    aten._scaled_dot_product_flash_attention_for_cpu.default,",
    "    aten._scaled_dot_product_efficient_attention.default,",
    "    aten._scaled_dot_product_cudnn_attention.default,",
    "]",
    "keeping_products = partial(create_selective_checkpoint_contexts, products)",
)

_CHECKPOINTED = (
    "",
    "",
    "class Checkpointed(torch.nn.Module):",
    '    """Layers that keep only their input for backward."""',
    "",
    "    def __init__(self, blocks):",
    "        super().__init__()",
    "        self.blocks = torch.nn.Sequential(*blocks)",
    "",
    "    def forward(self, x):",
)
