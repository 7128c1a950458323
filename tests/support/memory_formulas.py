"""Bytes of a step in closed form, beyond those that the product needs."""

from typing import Any

from lmsweep.trials.analytic import formulas

_STATE_BYTES = {"train_forward": 4, "forward_backward": 4, "train_step": 12}
"""Bytes per parameter at the start of forward: the weight and, with an optimizer, AdamW's two moments."""


def before_backward_bytes(*, mode: Any, autocast: Any = False, **dimensions: Any) -> Any:
    """Return the bytes in use between forward and backward, from the second step on.

    4P + A + 4TV (2TV with autocast) + 4sd/h, plus 8P in mode train_step: the weights, the tensors that autograd saves,
    the logits (still referenced by the training loop), the rotary tables and AdamW's moments. Exact except for the
    loss, the optimizer's step counters and the allocator's rounding. mode: but `forward`, which saves nothing.
    dimensions: those of `formulas.saved_bytes`.
    """
    parameters, logits = _parameters(dimensions), _logits(dimensions)
    held = (4 - 2 * autocast) * logits + _tables_bytes(dimensions)
    return _state(mode) * parameters + formulas.saved_bytes(autocast=autocast, **dimensions) + held


def forward_peak_bytes(**terms: Any) -> Any:
    """Peak bytes of forward, reached in the loss: `before_backward_bytes` + 4TV + 4T."""
    tokens = terms["batch_size"] * terms["context_length"]
    return before_backward_bytes(**terms) + 4 * tokens * (terms["vocab_size"] + 1)


def _state(mode: Any) -> Any:
    return _STATE_BYTES[mode] if isinstance(mode, str) else mode.map(_STATE_BYTES)


def _parameters(dimensions: dict[str, Any]) -> Any:
    return formulas.parameter_count(
        **{name: dimensions[name] for name in ("d_model", "d_ff", "num_layers", "vocab_size")}
    )


def _logits(dimensions: dict[str, Any]) -> Any:
    return dimensions["batch_size"] * dimensions["context_length"] * dimensions["vocab_size"]


def _tables_bytes(dimensions: dict[str, Any]) -> Any:
    # Rotary tables: 4sd/h
    return 4 * dimensions["context_length"] * dimensions["d_model"] // dimensions["num_heads"]
