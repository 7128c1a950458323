"""Bytes of a step in closed form, beyond those that the product needs."""

from typing import Any

from lmsweep.trials.analytic import formulas


def forward_peak_bytes(**terms: Any) -> Any:
    """Peak bytes of forward, reached in the loss: `before_backward_bytes` + 4TV + 4T."""
    tokens = terms["batch_size"] * terms["context_length"]
    return formulas.before_backward_bytes(**terms) + 4 * tokens * (terms["vocab_size"] + 1)
