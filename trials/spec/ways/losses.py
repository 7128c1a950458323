"""Losses. To add one, add a row to LOSSES; its function is in `lmsweep.trials.model.loss_functions`."""

from dataclasses import dataclass
from functools import partial

from lmsweep.trials.spec.ways.pytorch_lines import Recipe, import_of, when


@dataclass(frozen=True, kw_only=True)
class Loss:
    takes_hidden: bool = False
    """Whether it takes hidden states and the weight of the output head, not logits."""
    is_compiled: bool = False
    """Whether torch.compile compiles it in every trial."""
    function: str | None = None
    """What it calls of a package of Triton kernels, which need CUDA, as `package.module.Name`."""
    prepared: tuple[str, ...] = ()
    """The PyTorch that `best` prints before the step."""
    call: str = "functional.cross_entropy(logits.float(), labels)"
    """The PyTorch that `best` prints in the step, of `logits`, or of `hidden` and `weight`."""

    def recipe(self, autocast: str | None, output: str) -> Recipe:
        cast = f".to(torch.{autocast})" if autocast else ""  # autocast does not know these functions
        hidden = (f"hidden = {output}.flatten(0, -2){cast}", f"weight = model.head.weight{cast}")
        operands = hidden if self.takes_hidden else (f"logits = {output}.flatten(0, -2)",)
        fact = "loss: model(inputs) is the input of the output head, whose weight is model.head.weight"
        return Recipe(
            facts=when(self.takes_hidden, fact),
            imports=import_of(self.function),
            lines=self.prepared,
            forward=(*operands, "labels = targets.flatten()", f"loss = {self.call}"),
        )


_hidden = partial(Loss, takes_hidden=True)

LOSSES: dict[str, Loss] = {
    "eager": Loss(),
    "cross_entropy": Loss(),
    "compiled": Loss(
        is_compiled=True,
        prepared=("cross_entropy = torch.compile(functional.cross_entropy, dynamic=False)",),
        call="cross_entropy(logits.float(), labels)",
    ),
    "chunked": _hidden(
        prepared=("chunked = functional.linear_cross_entropy", "options = torch.nn.LinearCrossEntropyOptions()"),
        call="chunked(hidden, weight, labels, options=options)",
    ),
    "liger": _hidden(
        function="liger_kernel.transformers.LigerFusedLinearCrossEntropyLoss",
        call="LigerFusedLinearCrossEntropyLoss()(weight, hidden, labels)",
    ),
    "cut_cross_entropy": _hidden(
        function="cut_cross_entropy.linear_cross_entropy", call="linear_cross_entropy(hidden, weight, labels)"
    ),
}
"""Word of the field `loss` -> the loss."""

HIDDEN_LOSSES = tuple(name for name, one in LOSSES.items() if one.takes_hidden)
COMPILED_LOSSES = tuple(name for name, one in LOSSES.items() if one.is_compiled)
FUSED_LOSSES = HIDDEN_LOSSES + COMPILED_LOSSES
"""Losses that kernels of their own compute, not PyTorch's operators."""
