"""Closed-form counts of the transformer's parameters, FLOPs and bytes, for ints, NumPy arrays and pandas columns.

Notation: L layers, d model width, f feed-forward width, h heads, V vocabulary size, B batch size, s context length,
T = B·s tokens per step, P parameters. Shapes of newer models: a width of all query heads, k width of all key heads
(both d by default), m matrices of a feed-forward layer (3), E experts (1), A of them active (1), r = 1 with a router
(0), n weights of the norms of queries and keys (0), e matrices of V by d (2; 1 if the head is tied).

FLOPs count matrix products only, two per multiply-add, with attention over the full s². Bytes are for the uncompiled
model with naive attention. `autocast` means 16-bit autocast as on CUDA; weights are float32 with and without it.

The formulas are derived operation by operation. The tests compare them with PyTorch's `FlopCounterMode` and with the
tensors that autograd saves.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from lmsweep.trials.spec.ways.checkpointings import Recomputed

Number = Any
"""An int, a float, a NumPy array or a pandas Series. Arithmetic that mixes them has no common static type."""

PASSES = {"forward": 1, "train_forward": 1, "forward_backward": 3, "train_step": 3}
"""FLOPs of one iteration per mode, in forward passes. The optimizer has no matrix products and is not counted."""

PHASE_PASSES = {"forward": 1, "backward": 2}
"""FLOPs of a phase, in forward passes. Backward computes two gradients per product, each a product of equal size."""


class Dimensions(NamedTuple):
    """The dimensions of a model, by default of the plain shape."""

    d_model: Number
    d_ff: Number
    num_layers: Number
    query_width: Number = None
    key_width: Number = None
    norm_width: Number = 0
    matrices: Number = 3
    experts: Number = 1
    active_experts: Number = 1
    router: Number = 0
    vocabulary_matrices: Number = 2

    @property
    def widths(self) -> tuple[Number, Number]:
        """Return a and k, the widths of all query and of all key heads."""
        d, a, k = self.d_model, self.query_width, self.key_width
        return d if a is None else a, d if k is None else k


def parameter_count(*, vocab_size: Number, **dimensions: Number) -> Number:
    """Return the number of parameters, P = eVd + L(2da + 2dk + n + E·mdf + rdE + 2d) + d.

    By default that is 2Vd + L(4d² + 3df + 2d) + d. All experts count, active or not.
    """
    model = Dimensions(**dimensions)
    d, (a, k) = model.d_model, model.widths
    per_layer = 2 * d * (a + k) + model.norm_width + model.experts * model.matrices * d * model.d_ff
    layers = model.num_layers * (per_layer + model.router * model.experts * d + 2 * d)
    return model.vocabulary_matrices * vocab_size * d + layers + d


def forward_flops(*, vocab_size: Number, context_length: Number, batch_size: Number, **dimensions: Number) -> Number:
    """Return the FLOPs of one forward pass, TL(4da + 4dk + 4sa + 2A·mdf + 2rdE) + 2TdV.

    By default that is L(8Td² + 4Tsd + 6Tdf) + 2TdV. Only active experts count.
    """
    model = Dimensions(**dimensions)
    d, (a, k) = model.d_model, model.widths
    attention = 4 * d * (a + k) + 4 * context_length * a
    feed_forward = 2 * model.active_experts * model.matrices * d * model.d_ff + 2 * model.router * model.experts * d
    return batch_size * context_length * (model.num_layers * (attention + feed_forward) + 2 * d * vocab_size)


def attention_flops(*, phase: str, d_model: Number, context_length: Number, batch_size: Number) -> Number:
    """Return the FLOPs of attention without its projections: 4Bs²d forward, 8Bs²d backward, with d over all heads."""
    return PHASE_PASSES[phase] * (4 * batch_size * context_length**2 * d_model)


def saved_bytes(
    *,
    d_model: Number,
    d_ff: Number,
    num_layers: Number,
    num_heads: Number,
    vocab_size: Number,
    context_length: Number,
    batch_size: Number,
    autocast: Number = False,
) -> Number:
    """Return A, the bytes that autograd saves for backward.

    float32: L(40Td + 20Tf + 8Bhs² + s² + 12Bhs + 8T) + 12Td + 8TV + 24T.
    Autocast: L(2(4d² + 3df) + 34Td + 10Tf + 6Bhs² + s² + 12Bhs + 8T) + 10Td + 2Vd + 8TV + 24T. The first term is a
    16-bit copy of every weight matrix; because of it autocast can need more memory than float32.

    Each storage counts once, the batch (8T for tokens, 8T for targets) too; weights and rotary tables do not.
    """
    d, f, s = d_model, d_ff, context_length
    tokens = batch_size * s
    rows = batch_size * num_heads * s
    layer = s**2 + 12 * rows + 8 * tokens
    ends = 8 * tokens * vocab_size + 24 * tokens
    wide = num_layers * (layer + 40 * tokens * d + 20 * tokens * f + 8 * rows * s) + 12 * tokens * d + ends
    casts = 2 * (4 * d**2 + 3 * d * f)
    narrow = num_layers * (layer + casts + 34 * tokens * d + 10 * tokens * f + 6 * rows * s)
    narrow = narrow + 10 * tokens * d + 2 * vocab_size * d + ends
    return autocast * narrow + (1 - autocast) * wide


def recomputed_flops(
    again: Recomputed, dimensions: Mapping[str, Number], *, block: Number, tokens: Number, compiled: Number
) -> Number:
    """Return the FLOPs that backward computes again, which HFU counts and MFU does not (Chowdhery et al., "PaLM", 2022,
    appendix B). block: of a block's forward. compiled: 1 if blocks are compiled one by one."""
    last = 2 * tokens * dimensions["d_ff"] * dimensions["d_model"]  # the block's last product, if it is left out
    last = last * (1 - dimensions["router"]) * (1 - compiled)
    return again.blocks * block - again.ended_early * last
