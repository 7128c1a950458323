"""Closed forms: parameters, floating-point operations and bytes of the model in `trials.model`.

All are plain arithmetic, so that numbers, arrays and columns of a table serve alike. L layers, width d, feed-forward
width f, h heads, vocabulary V, batch B, context s, T = B·s tokens. The tests hold them against PyTorch's
`FlopCounterMode` and against what autograd really saves.
"""

from typing import Any

Number = Any
"""An int, a float, a NumPy array or a pandas Series."""

PASSES = {"forward": 1, "train_forward": 1, "forward_backward": 3, "train_step": 3}
"""Work of an iteration in each mode, in forward passes: the backward pass multiplies twice for each product."""


def parameter_count(*, d_model: Number, d_ff: Number, num_layers: Number, vocab_size: Number) -> Number:
    """Weights of the model: 2Vd + L(4d² + 3df + 2d) + d."""
    per_layer = 4 * d_model**2 + 3 * d_model * d_ff + 2 * d_model
    return 2 * vocab_size * d_model + num_layers * per_layer + d_model


def forward_flops(
    *,
    d_model: Number,
    d_ff: Number,
    num_layers: Number,
    vocab_size: Number,
    context_length: Number,
    batch_size: Number,
) -> Number:
    """FLOPs of one forward pass, matrix products only: L(8Td² + 4Tsd + 6Tdf) + 2TdV, attention over the full s²."""
    tokens = batch_size * context_length
    per_layer = 8 * d_model**2 + 4 * context_length * d_model + 6 * d_model * d_ff
    return tokens * (num_layers * per_layer + 2 * d_model * vocab_size)


def attention_forward_flops(*, d_model: Number, context_length: Number, batch_size: Number) -> Number:
    """FLOPs of attention alone: 4Bs²d; its backward pass has twice as many."""
    return 4 * batch_size * context_length**2 * d_model


def saved_bytes(
    *,
    d_model: Number,
    d_ff: Number,
    num_layers: Number,
    num_heads: Number,
    vocab_size: Number,
    context_length: Number,
    batch_size: Number,
    autocast_16bit: bool = False,
) -> Number:
    """Bytes that autograd keeps for backward, naive attention, not compiled; weights and tables not counted.

    Under 16-bit autocast it also keeps a 16-bit copy of every matrix, which is how autocast can need more memory.
    """
    d, f, s = d_model, d_ff, context_length
    tokens = batch_size * s
    scores = batch_size * num_heads * s**2
    rows = batch_size * num_heads * s
    common = s**2 + 12 * rows + 8 * tokens
    ends = 8 * tokens * vocab_size + 24 * tokens
    if not autocast_16bit:
        return num_layers * (40 * tokens * d + 20 * tokens * f + 8 * scores + common) + 12 * tokens * d + ends
    casts = 2 * (4 * d**2 + 3 * d * f)
    per_layer = casts + 34 * tokens * d + 10 * tokens * f + 6 * scores + common
    return num_layers * per_layer + 10 * tokens * d + 2 * vocab_size * d + ends
