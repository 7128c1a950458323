"""How to use a configuration: the command that measures it again, and plain PyTorch that sets it up."""

import shlex
from collections.abc import Iterable
from itertools import chain
from textwrap import wrap

from lmsweep.orchestrator.features.best.recipes import model_recipes, step_recipes
from lmsweep.orchestrator.features.best.recipes.step_recipes import Recipe, when
from lmsweep.trials.analytic.formulas import PASSES
from lmsweep.trials.spec.config import CONFIG_FIELDS, TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES, ModelSize
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.offloads import OFFLOADS
from lmsweep.trials.spec.ways.precisions import PRECISIONS

_DIMENSIONS = tuple(ModelSize.__dataclass_fields__)

LINE = 74
"""Columns of the commands and the code, so that they can be indented on a terminal of 80."""


def trial_command(config: TrialConfig, workloads: Iterable[str]) -> str:
    """Return the `lmsweep trial` that measures the configuration, on as many lines as it needs."""
    size = SIZES.get(config.model or "")
    named = size is not None and all(getattr(size, name) == getattr(config, name) for name in _DIMENSIONS)
    # A name of the table stands for all dimensions. If one differs, all are given, without the name.
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
    has_gradients, trains = PASSES[config.mode] > 1, config.mode == "train_step"
    compilation, checkpointing = model_recipes.of_compilation(config), model_recipes.of_checkpointing(config)
    recipe = _joined(
        model_recipes.of_attention(config),
        Recipe(lines=("model.eval()" if config.mode == "forward" else "model.train()",)),  # without or with dropout
        model_recipes.of_precision(config, has_gradients=has_gradients),
        model_recipes.of_adapter(config),
        *((checkpointing, compilation) if config.compiles_checkpoints else (compilation, checkpointing)),
        step_recipes.of_loss(config),
        step_recipes.of_optimizer(config) if trains else Recipe(),
    )
    facts = [line for fact in _facts(config, recipe) for line in wrap(f"# {fact}", LINE, subsequent_indent="#   ")]
    lines = ["import torch", "from torch.nn import functional", *recipe.imports, "", *facts, "", *recipe.lines, "", ""]
    lines += [*when(config.mode == "forward", "@torch.inference_mode()"), *recipe.decorators]
    lines += ["def step(inputs, targets):", *_indented(_step(config, recipe))]
    path = config.blocks or "blocks"  # where the configuration's model has its layers; in names, f'blocks.{name}'
    return "\n".join([*lines, ""]).replace("model.blocks", f"model.{path}").replace("f'blocks.", f"f'{path}.")


def _step(config: TrialConfig, recipe: Recipe) -> list[str]:
    """Return the body of the function that runs a step."""
    has_gradients = PASSES[config.mode] > 1
    forward = [*when(config.records_cuda_graphs, "torch.compiler.cudagraph_mark_step_begin()")]
    if recipe.around_forward:
        (manager,) = recipe.around_forward  # only the precision has one
        forward += [f"with {manager}:", *_indented(recipe.forward)]
    else:
        forward += recipe.forward
    clearing = when(has_gradients, "model.zero_grad(set_to_none=True)")
    scales = PRECISIONS[config.precision].scales_gradients
    backward = when(has_gradients, "scaler.scale(loss).backward()" if scales else "loss.backward()")
    clears_early = config.zero_grad == "before_backward"
    early = clearing if clears_early else ()
    if config.accumulate == 1:
        result, passes = "loss.detach()", [*forward, *early, *backward]
    else:  # micro-batches add up their gradients, so these are cleared before the first or after the update
        count = config.accumulate
        loop = f"for inputs, targets in zip(inputs.chunk({count}), targets.chunk({count})):"
        micro = [*forward, f"loss = loss / {count}", *backward, "total += loss.detach()"]
        result, passes = "total", [*early, "total = 0", loop, *_indented(micro)]
    update = _update(config) if config.mode == "train_step" else []
    return [*passes, *update, *(() if clears_early else clearing), f"return {result}"]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _joined(*recipes: Recipe) -> Recipe:
    """Return the recipe that has in each field the lines of all, in their order."""
    lines_by_field = zip(*recipes, strict=True)
    return Recipe(*(tuple(chain.from_iterable(lines)) for lines in lines_by_field))


def _update(config: TrialConfig) -> list[str]:
    """Return the statements that update the weights: of copies in float32, if the precision has them."""
    formats = PRECISIONS[config.precision]
    pairs = "for weight, copy in zip(weights, copies):"
    return [
        *when(formats.has_copies, pairs, "    copy.grad = None if weight.grad is None else weight.grad.float()"),
        "for optimizer in optimizers:",
        "    scaler.step(optimizer)" if formats.scales_gradients else "    optimizer.step()",
        *when(formats.scales_gradients, "scaler.update()"),
        *when(formats.has_copies, pairs, "    weight.data.copy_(copy.data)"),
    ]


def _facts(config: TrialConfig, recipe: Recipe) -> list[str]:
    """Return comments on what the code does not do, and what `model`, `inputs` and `targets` are."""
    own = [name for name in ("step", "optimizer", "loss", "ddp") if is_reference(getattr(config, name))]
    return [
        f"model: an nn.Module on {config.device_type}, its layers in model.blocks; inputs, targets: integers "
        f"({config.batch_size}, {config.context_length})",
        *recipe.facts,
        *(f"{name}: {getattr(config, name)}, your own, takes the place of the one below" for name in own),
        *when(config.capture != "none", "The whole step is captured once with torch.cuda.graph and replayed."),
        *filter(None, (OFFLOADS[config.offload].fact,)),
        *when(
            config.memory_budget,
            "torch._functorch.config.activation_memory_budget = step.saved_share of the results, which keeps a step "
            f"within {config.memory_budget} bytes",
        ),
        *when(config.world_size > 1, f"{config.world_size} ranks; gradients are synchronised by ddp: {config.ddp}"),
    ]
