"""Losses. To add one, add a row to LOSSES; its function is in `lmsweep.trials.model.loss_functions`."""

from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True, kw_only=True)
class Loss:
    takes_hidden: bool = False
    """Whether it takes hidden states and the weight of the output head, not logits."""
    is_divided: bool = False
    """Whether ranks can share the vocabulary."""
    is_compiled: bool = False
    """Whether torch.compile compiles it in every trial."""
    function: str | None = None
    """What it calls of a package of Triton kernels, which need CUDA, as `package.module.Name`."""


_hidden = partial(Loss, takes_hidden=True)

LOSSES: dict[str, Loss] = {
    "eager": Loss(is_divided=True),
    "cross_entropy": Loss(),
    "compiled": Loss(is_divided=True, is_compiled=True),
    "chunked": _hidden(),
    "liger": _hidden(function="liger_kernel.transformers.LigerFusedLinearCrossEntropyLoss"),
    "cut_cross_entropy": _hidden(function="cut_cross_entropy.linear_cross_entropy"),
}
"""Word of the field `loss` -> the loss."""

HIDDEN_LOSSES = tuple(name for name, one in LOSSES.items() if one.takes_hidden)
COMPILED_LOSSES = tuple(name for name, one in LOSSES.items() if one.is_compiled)
FUSED_LOSSES = HIDDEN_LOSSES + COMPILED_LOSSES
"""Losses that kernels of their own compute, not PyTorch's operators."""
