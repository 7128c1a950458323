"""The two usual ways to count the FLOPs of attention, which give one measured time two rates.

`model` counts what the model's definition says: all s² scores, backward twice forward. It is the usual count of MFU
(Chowdhery et al., "PaLM", 2022). `hardware` is that of FlashAttention's published figures (Dao, "FlashAttention-2",
2023): a causal mask leaves half of the scores, and a fused backward has five products for the two of forward, since it
computes the scores again. Of a window of w positions, `model` counts w scores for each of the s positions, `hardware`
those that exist, ws - w²/2. Of packed documents, each counts as a sequence of its length. Both count every other matrix
product alike, and neither counts activation checkpointing (`recomputed_flops`).
"""

from typing import Literal

from lmsweep.trials.analytic.formulas import Number

FlopConvention = Literal["model", "hardware"]

MEANING: dict[FlopConvention, str] = {
    "model": "FLOPs: model convention (causal attention counted in full, backward as 2 x forward)",
    "hardware": "FLOPs: hardware convention (causal attention counted as half, its backward as 2.5 x forward)",
}
"""What the title of a table says about its rates."""

BACKWARD_OF_ATTENTION: dict[FlopConvention, float] = {"model": 2, "hardware": 2.5}
"""FLOPs of attention's backward, in those of its forward."""


def share_of_scores(convention: FlopConvention, *, causal: Number, window: Number = 1) -> Number:
    """Return the share of all s² scores that is counted. causal: 0 or 1. window: as a share of all s; 1 without one,
    or without a causal mask, which a window needs."""
    return window if convention == "model" else 1 - causal * (1 - window + window**2 / 2)


def counted_flops(
    convention: FlopConvention, *, other: Number, attention: Number, forward: Number, backward: Number, share: Number
) -> Number:
    """Return the FLOPs of a phase. other, attention: FLOPs of one forward pass outside attention and in it, over all s²
    scores. forward, backward: number of such passes in the phase. share: share of the scores that is counted."""
    passes_of_attention = forward + backward * BACKWARD_OF_ATTENTION[convention]
    return other * (forward + 2 * backward) + attention * share * passes_of_attention
