"""Closed forms of the model in `lmsweep.trials.model.transformer`: parameters, floating-point operations, bytes.

Plain arithmetic, so that ints, NumPy arrays and columns of a table serve alike. In the formulas L is the number of
layers, d the width, f the feed-forward width, h the heads, V the vocabulary, B the batch, s the context length,
T = B·s the tokens of a step and P the parameters. FLOPs are those of matrix products alone, two for each multiply-add,
with attention over the full s². Bytes are those of a model that is not compiled, with naive attention; `autocast`
means 16-bit autocast as CUDA does it, and float32 weights either way.

The formulas were derived from the operations one by one; the tests hold them against PyTorch's `FlopCounterMode` and
against the tensors that autograd really keeps.
"""

from typing import Any

Number = Any
"""An int, a float, a NumPy array or a pandas Series."""

PASSES = {"forward": 1, "train_forward": 1, "forward_backward": 3, "train_step": 3}
"""Work of one iteration in each mode, in forward passes; the optimizer's, no matrix product, is not counted."""

PHASE_PASSES = {"forward": 1, "backward": 2}
"""Work of a phase in forward passes: each product has two gradients, and each of them is a product as large."""

_STATE_BYTES = {"train_forward": 4, "forward_backward": 4, "train_step": 12}
"""Bytes per parameter when forward begins: the weight and, where there is an optimizer, AdamW's two moments."""


def parameter_count(*, d_model: Number, d_ff: Number, num_layers: Number, vocab_size: Number) -> Number:
    """P = 2Vd + L(4d² + 3df + 2d) + d."""
    per_layer = 4 * d_model**2 + 3 * d_model * d_ff + 2 * d_model
    return 2 * vocab_size * d_model + num_layers * per_layer + d_model


def tokens_per_step(*, context_length: Number, batch_size: Number) -> Number:
    """T = Bs."""
    return batch_size * context_length


def forward_flops(
    *,
    d_model: Number,
    d_ff: Number,
    num_layers: Number,
    vocab_size: Number,
    context_length: Number,
    batch_size: Number,
) -> Number:
    """FLOPs of one forward pass: L(8Td² + 4Tsd + 6Tdf) + 2TdV."""
    tokens = tokens_per_step(context_length=context_length, batch_size=batch_size)
    per_layer = 8 * d_model**2 + 4 * context_length * d_model + 6 * d_model * d_ff
    return tokens * (num_layers * per_layer + 2 * d_model * vocab_size)


def attention_flops(*, phase: Any, d_model: Number, context_length: Number, batch_size: Number) -> Number:
    """FLOPs of attention alone, without its projections: 4Bs²d forward, 8Bs²d backward; d over all heads.

    `phase` is forward or backward, or a pandas Series of these words.
    """
    return _look_up(PHASE_PASSES, phase) * (4 * batch_size * context_length**2 * d_model)


def softmax_flops(*, num_heads: Number, context_length: Number, batch_size: Number) -> Number:
    """Operations of one softmax of attention, forward, as it is written out: 5Bhs².

    Of each score: compare it with the largest, subtract that, exponentiate, add to the sum, divide by it.
    """
    return 5 * batch_size * num_heads * context_length**2


def attention_before_backward_bytes(
    *,
    d_model: Number,
    context_length: Number,
    batch_size: Number,
    num_heads: Number = 1,
    causal: Any = True,
    torch_softmax: Any = False,
) -> Number:
    """Bytes in use between forward and backward of attention alone, written out in float32 and not compiled.

    16Bsd + 8Bhs² + 12Bhs, and s² more where it is causal: queries, keys, values and output; exponentials and weights;
    the sums, the positions of the maxima; the mask. With `torch_softmax` (`naive_softmax`) 16Bsd + 4Bhs², and s² more
    where it is causal: only the weights are kept. d is over all heads. Exact but for the allocator's rounding and what
    libraries take for themselves: cuBLAS a workspace for each of the two threads that call it, forward's and
    backward's, of 8 519 680 bytes each on most GPUs and 33 554 432 on Hopper.

    `causal` and `torch_softmax` are bools or arrays of them.
    """
    rows = batch_size * num_heads * context_length
    operands = 16 * batch_size * context_length * d_model
    matrices = (2 - torch_softmax) * 4 * rows * context_length + causal * context_length**2
    return operands + matrices + (1 - torch_softmax) * 12 * rows


def saved_bytes(
    *,
    d_model: Number,
    d_ff: Number,
    num_layers: Number,
    num_heads: Number,
    vocab_size: Number,
    context_length: Number,
    batch_size: Number,
    autocast: Any = False,
) -> Number:
    """A, the bytes that autograd keeps for backward.

    float32: L(40Td + 20Tf + 8Bhs² + s² + 12Bhs + 8T) + 12Td + 8TV + 24T.
    Autocast: L(2(4d² + 3df) + 34Td + 10Tf + 6Bhs² + s² + 12Bhs + 8T) + 10Td + 2Vd + 8TV + 24T; the first term is a
    16-bit copy of every matrix, which is how autocast can need more memory than float32.

    Each storage counts once. Weights and rotary tables do not count, as they are there anyway; the batch (8T of tokens,
    8T of targets) does. `autocast` is a bool or an array of them.
    """
    d, f, s = d_model, d_ff, context_length
    tokens = tokens_per_step(context_length=s, batch_size=batch_size)
    rows = batch_size * num_heads * s
    layer = s**2 + 12 * rows + 8 * tokens
    ends = 8 * tokens * vocab_size + 24 * tokens
    wide = num_layers * (layer + 40 * tokens * d + 20 * tokens * f + 8 * rows * s) + 12 * tokens * d + ends
    casts = 2 * (4 * d**2 + 3 * d * f)
    narrow = num_layers * (layer + casts + 34 * tokens * d + 10 * tokens * f + 6 * rows * s)
    narrow = narrow + 10 * tokens * d + 2 * vocab_size * d + ends
    return autocast * narrow + (1 - autocast) * wide


def before_backward_bytes(*, mode: Any, autocast: Any = False, **dimensions: Number) -> Number:
    """Bytes in use between forward and backward, from the second step on; dimensions as for `saved_bytes`.

    4P + A + (4, with autocast 2)TV + 4sd/h, and 8P more in mode train_step: weights, what backward needs, the logits
    (which a training loop still names), the rotary tables and AdamW's moments; gradients have been set to None. Exact
    but for the loss itself, the optimizer's step counters and the allocator's rounding. `mode` is a word or a pandas
    Series of words; mode forward keeps nothing and has no closed form.
    """
    parameters, logits = _parameters(dimensions), _logits(dimensions)
    held = (4 - 2 * autocast) * logits + _tables_bytes(dimensions)
    return _look_up(_STATE_BYTES, mode) * parameters + saved_bytes(autocast=autocast, **dimensions) + held


def forward_peak_bytes(*, mode: Any, autocast: Any = False, **dimensions: Number) -> Number:
    """Most bytes in use during forward: 4TV + 4T more than `before_backward_bytes`, in the loss; the same arguments."""
    loss = 4 * _logits(dimensions) + 4 * dimensions["batch_size"] * dimensions["context_length"]
    return before_backward_bytes(mode=mode, autocast=autocast, **dimensions) + loss


def step_peak_bytes(*, mode: Any, autocast: Any = False, **dimensions: Number) -> Number:
    """Most bytes in use during a step with a backward pass; arguments as for `before_backward_bytes`.

    The larger of `before_backward_bytes` + 8TV, in the loss's backward, and (8P, in mode train_step 16P) + 4sd/h, when
    all gradients are there. Within 2 % of the truth; AdamW's foreach implementation needs 4P more.
    """
    early = before_backward_bytes(mode=mode, autocast=autocast, **dimensions) + 8 * _logits(dimensions)
    late = (_look_up(_STATE_BYTES, mode) + 4) * _parameters(dimensions) + _tables_bytes(dimensions)
    # The larger of two, in arithmetic that arrays know too.
    return (early + late + abs(early - late)) // 2


def _parameters(dimensions: dict[str, Number]) -> Number:
    return parameter_count(**{name: dimensions[name] for name in ("d_model", "d_ff", "num_layers", "vocab_size")})


def _logits(dimensions: dict[str, Number]) -> Number:
    """TV, the number of logits."""
    return dimensions["batch_size"] * dimensions["context_length"] * dimensions["vocab_size"]


def _tables_bytes(dimensions: dict[str, Number]) -> Number:
    """4sd/h, the bytes of the rotary tables."""
    return 4 * dimensions["context_length"] * dimensions["d_model"] // dimensions["num_heads"]


def _look_up(table: dict[str, int], words: Any) -> Number:
    return table[words] if isinstance(words, str) else words.map(table)
