"""How to use a configuration: the command that measures it again, and plain PyTorch that sets it up."""

import shlex
from collections.abc import Iterable
from textwrap import wrap

from lmsweep.trials.analytic.formulas import PASSES
from lmsweep.trials.spec.config import CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES, ModelSize
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.adapters import adapter_recipe
from lmsweep.trials.spec.ways.attentions import ATTENTIONS
from lmsweep.trials.spec.ways.checkpoint_groups import checkpointing_recipe
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.ways.pytorch_lines import Recipe
from lmsweep.trials.spec.words import HIDDEN_LOSSES

_DIMENSIONS = tuple(ModelSize.__dataclass_fields__)


LINE = 74
"""Columns of the commands and the code, so that they can be indented on a terminal of 80."""


def trial_command(config: TrialConfig, workloads: Iterable[str]) -> str:
    """Return the `lmsweep trial` that measures the configuration, on as many lines as it needs."""
    size = SIZES.get(config.model or "")
    named = size is not None and all(getattr(size, name) == getattr(config, name) for name in _DIMENSIONS)
    hidden = {*_DIMENSIONS} if named else {"model"}
    settings = {
        name: getattr(config, name)
        for name, field in CONFIG_FIELDS.items()
        if name not in hidden and getattr(config, name) != field.default
    }
    words = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in settings.items()]
    lines = ["lmsweep trial"]
    for word in map(shlex.quote, [*words, f"workloads={','.join(workloads)}"]):
        if len(f"{lines[-1]} {word} \\") <= LINE:
            lines[-1] += f" {word}"
        else:
            lines.append(f"    {word}")
    return " \\\n".join(lines)


def pytorch_snippet(config: TrialConfig) -> str:
    """Return Python that sets up your own model as the configuration does, and defines its training step.

    The names `model`, `inputs` and `targets` are the reader's: an nn.Module on the device with its layers in
    `model.blocks`, and integers (batch, tokens).
    """
    before, around = _preparation(config), _contexts(config)
    facts = [line for fact in _facts(config) for line in wrap(fact, LINE, subsequent_indent="#   ")]
    kernel = _kernel(config)
    # With checkpointing backward runs attention again, and has to choose the same kernel.
    chosen = [f"@sdpa_kernel(SDPBackend.{kernel})"] if kernel else []
    lines = [*_imports(config), "", *facts, "", *before, "", "", *chosen, "def step(inputs, targets):"]
    mark = ["torch.compiler.cudagraph_mark_step_begin()"] if config.records_cuda_graphs else []
    forward = _forward(config)
    if len(around) > 1:
        mark += ["with (", *(f"    {one}," for one in around), "):"]
    elif around:
        mark.append(f"with {around[0]}:")
    clear = ["model.zero_grad(set_to_none=True)"] if PASSES[config.mode] > 1 else []
    early, late = (clear, []) if config.zero_grad == "before_backward" else ([], clear)
    computing = [*mark, *(f"    {line}" if around else line for line in forward)]
    if config.accumulate == 1:
        returned, body = "loss.detach()", [*computing, *early, *_backward(config)]
    else:
        parts = f"(inputs.chunk({config.accumulate}), targets.chunk({config.accumulate}))"
        inner = [*computing, *_backward(config), "total += loss.detach()"]
        body = [*early, "total = 0", f"for inputs, targets in zip{parts}:", *(f"    {line}" for line in inner)]
        returned = "total"
    lines += [f"    {line}" for line in [*body, *_update(config), *late, f"return {returned}"]]
    return "\n".join(lines) + "\n"


def _trains(config: TrialConfig) -> bool:
    return config.mode == "train_step"


def _imports(config: TrialConfig) -> list[str]:
    found = ["import torch", "from torch.nn import functional"]
    if _kernel(config):
        found.append("from torch.nn.attention import SDPBackend, sdpa_kernel")
    if PRECISIONS[config.precision].float8_recipe:
        found.append("from torchao.float8 import Float8LinearConfig, convert_to_float8_training")
    optimizer = OPTIMIZERS.get(config.optimizer)
    if optimizer and not optimizer.factory.startswith("torch."):
        module, _, name = optimizer.factory.rpartition(".")
        found.append(f"from {module} import {name}")
    if config.loss == "liger":
        found.append("from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss")
    if config.loss == "cut_cross_entropy":
        found.append("from cut_cross_entropy import linear_cross_entropy")
    return [*found, *(line for recipe in _recipes(config) for line in recipe.imports if line)]


def _recipes(config: TrialConfig) -> tuple[Recipe, Recipe]:
    """Of the adapter and of checkpointing."""
    formats = PRECISIONS[config.precision]
    types = {"stored": formats.operand, "computed": formats.operand, "trained": formats.weights}
    adapter = adapter_recipe(config.adapter, config.adapter_arguments, device=config.device_type, **types)
    return adapter, checkpointing_recipe(config.checkpointing, config.num_layers or 1)


def _facts(config: TrialConfig) -> list[str]:
    facts = [
        f"# model: an nn.Module on {config.device_type}, its layers in model.blocks; inputs, targets: integers "
        f"({config.batch_size}, {config.context_length})"
    ]
    known = ATTENTIONS.get(config.attention)
    written_out = f"{config.attention}, in the model's own code"
    facts.append(f"# attention: {known.pytorch if known and known.pytorch else written_out}")
    if config.window is not None:
        facts.append(f"# attention: each position attends to the last {config.window}, itself included")
    if config.document_length is not None:
        facts.append(f"# attention: within packed documents of {config.document_length} tokens on average")
    if config.loss in HIDDEN_LOSSES:
        facts.append("# loss: model(inputs) is the input of the output head, whose weight is model.head.weight")
    own = [name for name in ("optimizer", "loss", "ddp") if is_reference(getattr(config, name))]
    facts += [f"# {name}: {getattr(config, name)}, your own, takes the place of the one below" for name in own]
    if config.capture == "step":
        facts.append("# The whole step is captured once with torch.cuda.graph and replayed.")
    if config.offload == "activations":
        facts.append("# torch.autograd.graph.save_on_cpu(pin_memory=True) moves what forward saves, weights excepted")
    if config.offload == "optimizer":
        facts.append(
            "# The optimizer has copies of the weights in pinned memory of the host; gradients and weights are copied"
        )
    if config.memory_budget is not None:
        facts.append(
            f"# torch._functorch.config.activation_memory_budget = step.saved_share of the results, which keeps a step "
            f"within {config.memory_budget} bytes"
        )
    if config.world_size > 1:
        facts.append(f"# {config.world_size} ranks; gradients are synchronised by ddp: {config.ddp}")
    return facts


def _preparation(config: TrialConfig) -> list[str]:
    formats = PRECISIONS[config.precision]
    adapter, checkpointing = _recipes(config)
    lines = [f'torch.set_float32_matmul_precision("{"high" if formats.tf32 else "highest"}")']
    lines += adapter.lines
    if formats.weights != "float32" and config.adapter == "none":
        lines.append(f"model.to(torch.{formats.weights})")
    if formats.float8_recipe:
        lines.append(f'config = Float8LinearConfig.from_recipe_name("{formats.float8_recipe}")')
        lines.append("convert_to_float8_training(model.blocks, config=config)")
    mode = f'mode="{config.compile_mode}", dynamic={config.dynamic_shapes}'
    if config.compile == "block":
        lines += ["for block in model.blocks:", f"    block.compile({mode})"]
    lines += checkpointing.lines
    if config.compile == "model":
        lines.append(f"model.compile({mode})")
    if config.loss == "compiled":
        lines.append("cross_entropy = torch.compile(functional.cross_entropy, dynamic=False)")
    if _trains(config):
        lines += _optimizers(config)
    if formats.scales_gradients:
        lines.append(f'scaler = torch.amp.GradScaler("{config.device_type}")')
    return lines


def _forward(config: TrialConfig) -> list[str]:
    if config.loss not in HIDDEN_LOSSES:
        name = "cross_entropy" if config.loss == "compiled" else "functional.cross_entropy"
        return ["logits = model(inputs).flatten(0, -2)", f"loss = {name}(logits.float(), targets.flatten())"]
    narrow = PRECISIONS[config.precision].autocast
    cast = f".to(torch.{narrow})" if narrow else ""
    operands = [f"hidden = model(inputs).flatten(0, -2){cast}", f"weight = model.head.weight{cast}"]
    loss = {
        "chunked": [
            "options = torch.nn.LinearCrossEntropyOptions()",
            "loss = functional.linear_cross_entropy(",
            "    hidden, weight, targets.flatten(), options=options",
            ")",
        ],
        "liger": [
            "loss_function = LigerFusedLinearCrossEntropyLoss()",
            "loss = loss_function(weight, hidden, targets.flatten())",
        ],
        "cut_cross_entropy": ["loss = linear_cross_entropy(hidden, weight, targets.flatten())"],
    }[config.loss]
    return [*operands, *loss]


def _optimizers(config: TrialConfig) -> list[str]:
    name = config.optimizer if config.optimizer in OPTIMIZERS else "adamw_fused"
    if not OPTIMIZERS[name].only_matrices:
        if config.adapter == "none":
            return [f"optimizers = [{_call(name, 'model.parameters()')}]"]
        trained = "trained = [weight for weight in model.parameters() if weight.requires_grad]"
        return [trained, f"optimizers = [{_call(name, 'trained')}]"]
    return [
        "matrices = [w for w in model.blocks.parameters() if w.dim() == 2]",
        "others = list({*model.parameters()} - {*matrices})",
        "optimizers = [",
        f"    {_call(name, 'matrices')},",
        f"    {_call('adamw_fused', 'others')},",
        "]",
    ]


def _call(name: str, weights: str) -> str:
    """Return the call of an optimizer. The learning rate is that of lmsweep's steps, not a recommendation."""
    optimizer = OPTIMIZERS[name]
    in_torch = optimizer.factory.startswith("torch.")
    called = optimizer.factory if in_torch else optimizer.factory.rpartition(".")[2]
    return f"{called}({', '.join([weights, *(f'{key}={value}' for key, value in optimizer.arguments.items())])})"


def _kernel(config: TrialConfig) -> str | None:
    return ATTENTIONS[config.attention].kernel if config.attention in ATTENTIONS else None


def _contexts(config: TrialConfig) -> list[str]:
    found = []
    if config.mode == "forward":
        found.append("torch.inference_mode()")
    if autocast := PRECISIONS[config.precision].autocast:
        found.append(f'torch.autocast("{config.device_type}", dtype=torch.{autocast})')
    return found


def _backward(config: TrialConfig) -> list[str]:
    mean = [f"loss = loss / {config.accumulate}"] if config.accumulate > 1 else []
    if PASSES[config.mode] == 1:
        return mean
    scales = PRECISIONS[config.precision].scales_gradients
    return [*mean, "scaler.scale(loss).backward()" if scales else "loss.backward()"]


def _update(config: TrialConfig) -> list[str]:
    if not _trains(config):
        return []
    scales = PRECISIONS[config.precision].scales_gradients
    stepped = "scaler.step(optimizer)" if scales else "optimizer.step()"
    return ["for optimizer in optimizers:", f"    {stepped}", *(["scaler.update()"] if scales else [])]
