"""Writes the plain PyTorch code of a configuration's attention, precision, adapter, compilation and checkpointing.

The code follows from the tables in `lmsweep.trials.spec.ways`; a new attention also needs a row in ATTENTION_CALLS.
"""

from lmsweep.orchestrator.features.best.recipes.step_recipes import Recipe, when
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.attentions import ATTENTIONS, Attention
from lmsweep.trials.spec.ways.checkpointings import PRODUCTS
from lmsweep.trials.spec.ways.precisions import PRECISIONS

_SDPA = "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=...)"

ATTENTION_CALLS: dict[str, str | None] = {
    "naive": None,
    "naive_softmax": None,
    **dict.fromkeys(("sdpa", "sdpa_math", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn"), _SDPA),
    "flex": "torch.compile(torch.nn.attention.flex_attention.flex_attention)",
    "varlen": "torch.nn.attention.varlen.varlen_attn(q, k, v, cu_seqlens, cu_seqlens, longest, longest)",
}
"""Value of the field `attention` -> the PyTorch call; None: written out in the model."""


def of_attention(config: TrialConfig) -> Recipe:
    word, window, length = config.attention, config.window, config.document_length
    kernel = (ATTENTIONS.get(word) or Attention()).kernel
    return Recipe(
        facts=(
            f"attention: {ATTENTION_CALLS.get(word) or f'{word}, in the code of the model'}",
            *when(window, f"attention: each position attends to the last {window}, itself included"),
            *when(length, f"attention: within packed documents of {length} tokens on average"),
        ),
        imports=when(kernel, "from torch.nn.attention import SDPBackend, sdpa_kernel"),
        # With checkpointing backward runs attention again, and has to choose the same kernel.
        decorators=when(kernel, f"@sdpa_kernel(SDPBackend.{kernel})"),
    )


def of_precision(config: TrialConfig, *, has_gradients: bool) -> Recipe:
    formats, device = PRECISIONS[config.precision], config.device_type
    torchao = "from torchao.float8 import Float8LinearConfig, convert_to_float8_training"
    converts = formats.weights != "float32" and config.adapter not in ADAPTERS  # `of_adapter` casts them itself
    return Recipe(
        imports=when(formats.float8_recipe, torchao),
        lines=(
            f'torch.set_float32_matmul_precision("{"high" if formats.tf32 else "highest"}")',
            *when(converts, f"model.to(torch.{formats.weights})"),
            *when(
                formats.float8_recipe,
                f'config = Float8LinearConfig.from_recipe_name("{formats.float8_recipe}")',
                "convert_to_float8_training(model.blocks, config=config)",
            ),
            *when(formats.scales_gradients and has_gradients, f'scaler = torch.amp.GradScaler("{device}")'),
        ),
        around_forward=when(formats.autocast, f'torch.autocast("{device}", dtype=torch.{formats.autocast})'),
    )


def of_adapter(config: TrialConfig) -> Recipe:
    adapter, formats, arguments = ADAPTERS.get(config.adapter), PRECISIONS[config.precision], config.adapter_arguments
    if adapter is None:
        return Recipe()
    chosen = f"name.endswith({tuple(f'.{one}' for one in arguments.targets)})"  # name.endswith(('.q', '.v'))
    in_four_bits = (
        "for parent in list(model.blocks.modules()):",
        "    for name, layer in list(parent.named_children()):",
        "        if isinstance(layer, torch.nn.Linear):",
        "            narrow = bitsandbytes.nn.Linear4bit(",
        "                layer.in_features, layer.out_features, layer.bias is not None,",
        f'                torch.{formats.operand}, compress_statistics=False, quant_type="nf4",',
        "            )",
        "            narrow.load_state_dict(layer.state_dict())",
        f'            setattr(parent, name, narrow.to("{config.device_type}"))',
    )
    return Recipe(
        imports=(
            *when(adapter.stored_bits, "import bitsandbytes"),
            "from peft import LoraConfig, inject_adapter_in_model",
        ),
        lines=(
            f"model.to(torch.{formats.operand})",
            "targets = [",
            "    f'blocks.{name}' for name, layer in model.blocks.named_modules()",
            "    if isinstance(layer, torch.nn.Linear)",
            *when(arguments.targets, f"    and {chosen}"),
            "]",
            *when(adapter.stored_bits, *in_four_bits),
            "adapter = LoraConfig(",
            f"    r={arguments.rank}, lora_alpha={arguments.alpha}, lora_dropout={arguments.dropout},",
            f"    target_modules=targets, use_dora={adapter.magnitudes},",
            ")",
            "inject_adapter_in_model(adapter, model)",
            "for weight in model.parameters():",
            "    if weight.requires_grad:",
            f"        weight.data = weight.data.to(torch.{formats.weights})",
        ),
    )


def of_compilation(config: TrialConfig) -> Recipe:
    way, how = config.compilation, f'mode="{config.compile_mode}", dynamic={config.dynamic_shapes}'
    by_block = ("for block in model.blocks:", f"    block.forward = torch.compile(block.forward, {how})")
    return Recipe(lines=(*when(way.each_block, *by_block), *when(way.whole, f"model.compile({how})")))


def of_checkpointing(config: TrialConfig) -> Recipe:
    way = config.recomputation
    size = way.group_size(config.num_layers or 1)
    if size is None:
        return Recipe()
    selecting = (
        "products = [",
        *(f"    torch.ops.aten.{name}.default," for name in PRODUCTS),
        "]",
        "keeping_products = partial(create_selective_checkpoint_contexts, products)",
    )
    saving = ("for block in model.blocks:", "    block.forward = partial(save, block.forward)")
    return Recipe(
        imports=(
            "from functools import partial",
            "from torch.utils.checkpoint import checkpoint",
            *when(way.keeps_products, "from torch.utils.checkpoint import create_selective_checkpoint_contexts"),
        ),
        lines=(
            *when(way.keeps_products, *selecting),
            "save = partial(checkpoint, use_reentrant=False)",
            *when(way.keeps_products, "save = partial(save, context_fn=keeping_products)"),
            # Each block, each group of blocks (then they are model.blocks), or both if nested, the blocks first.
            *when(size == 1 or way.nested, *saving),
            *when(
                size > 1 or way.nested,
                "blocks = list(model.blocks)",
                f"groups = [blocks[first : first + {size}] for first in range(0, len(blocks), {size})]",
                "model.blocks = torch.nn.ModuleList(torch.nn.Sequential(*group) for group in groups)",
                *saving,
            ),
        ),
    )
