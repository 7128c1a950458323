"""What recipes are made of, and the plain PyTorch of a loss and of an optimizer.

It follows from the rows in `lmsweep.trials.spec.ways`; a new loss also needs a row in LOSS_CALLS.
"""

from typing import NamedTuple

from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.losses import LOSSES
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS, Optimizer
from lmsweep.trials.spec.ways.precisions import PRECISIONS


class Recipe(NamedTuple):
    """Lines of Python about `model`, whose layers are in `model.blocks`."""

    facts: tuple[str, ...] = ()
    """What the reader's model does itself."""
    imports: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """Statements that change the model in place."""
    decorators: tuple[str, ...] = ()
    """Decorators of the function that runs a step."""
    around_forward: tuple[str, ...] = ()
    """One context manager around forward and loss."""
    forward: tuple[str, ...] = ()
    """Statements that compute `loss` from `inputs` and `targets`."""


def when(condition: object, *lines: str) -> tuple[str, ...]:
    return lines if condition else ()


def import_of(path: str | None) -> tuple[str, ...]:
    """Return the import of `package.module.Name`; none of PyTorch, which is called in full."""
    module, _, name = (path or "torch.").rpartition(".")
    return when(module.partition(".")[0] != "torch", f"from {module} import {name}")


_CROSS_ENTROPY = "functional.cross_entropy(logits.float(), labels)"

LOSS_CALLS: dict[str, tuple[str, ...]] = {
    "eager": (_CROSS_ENTROPY,),
    "cross_entropy": (_CROSS_ENTROPY,),
    "compiled": (
        "cross_entropy = torch.compile(functional.cross_entropy, dynamic=False)",
        "cross_entropy(logits.float(), labels)",
    ),
    "chunked": (
        "chunked = functional.linear_cross_entropy",
        "options = torch.nn.LinearCrossEntropyOptions()",
        "chunked(hidden, weight, labels, options=options)",
    ),
    "liger": ("LigerFusedLinearCrossEntropyLoss()(weight, hidden, labels)",),
    "cut_cross_entropy": ("linear_cross_entropy(hidden, weight, labels)",),
}
"""Word of the field `loss` -> statements before the step and, last, the call that computes the loss: from `logits`, or
from `hidden` and `weight`."""


def of_loss(config: TrialConfig) -> Recipe:
    word = config.loss if config.loss in LOSSES else "eager"
    loss, (*prepared, call) = LOSSES[word], LOSS_CALLS[word]
    autocast = PRECISIONS[config.precision].autocast
    cast = f".to(torch.{autocast})" if autocast else ""  # autocast does not know these functions
    output = "model(inputs).logits" if config.is_hugging_face else "model(inputs)"
    head = "head" if config.is_hugging_face else "model.head"
    hidden = (f"hidden = {output}.flatten(0, -2){cast}", f"weight = {head}.weight{cast}")
    operands = hidden if loss.takes_hidden else (f"logits = {output}.flatten(0, -2)",)
    fact = "loss: model(inputs) is the input of the output head, whose weight is model.head.weight"
    taking = ("head = model.get_output_embeddings()", "head.forward = lambda hidden: hidden")
    return Recipe(
        facts=when(loss.takes_hidden and not config.is_hugging_face, fact),
        imports=import_of(loss.function),
        lines=(*when(loss.takes_hidden and config.is_hugging_face, *taking), *prepared),
        forward=(*operands, "labels = targets.flatten()", f"loss = {call}"),
    )


def _made(optimizer: Optimizer, weights: str) -> str:
    """Return the call that makes the optimizer of `weights`. The learning rate is that of lmsweep's trials, and no
    recommendation."""
    called = optimizer.factory if optimizer.is_of_torch else optimizer.factory.rpartition(".")[2]
    return f"{called}({', '.join([weights, *(f'{name}={value}' for name, value in optimizer.arguments.items())])})"


def of_optimizer(config: TrialConfig) -> Recipe:
    # In place of the user's own optimizer the usual one is written; a comment of the snippet says so.
    optimizer = OPTIMIZERS.get(config.optimizer) or OPTIMIZERS["adamw_fused"]
    trained = when(config.adapter in ADAPTERS, "trained = [w for w in model.parameters() if w.requires_grad]")
    weights = "trained" if trained else "model.parameters()"
    if PRECISIONS[config.precision].has_copies:
        trained += (f"weights = list({weights})", "copies = [w.detach().float().requires_grad_() for w in weights]")
        weights = "copies"
    lines = (*trained, f"optimizers = [{_made(optimizer, weights)}]")
    by_kind = (
        "matrices = [w for w in model.blocks.parameters() if w.dim() == 2]",
        "others = list({*model.parameters()} - {*matrices})",
        f"optimizers = [\n    {_made(optimizer, 'matrices')},\n    {_made(OPTIMIZERS['adamw_fused'], 'others')},\n]",
    )
    return Recipe(imports=import_of(optimizer.factory), lines=by_kind if optimizer.only_matrices else lines)
