"""The operators of a step with one change: another attention or dtype, some fused or computed again.

An operator of the blocks has a `count` above 1: it runs once in each block.
"""

from collections.abc import Iterator
from dataclasses import replace

from lmsweep.trials.analytic.rates.operators import PRODUCTS, Operator, Operators, class_of
from lmsweep.trials.analytic.rates.rate_set import Rates

FAST_ATTENTION = {
    "_scaled_dot_product_flash_attention": "sdpa_cudnn",
    "_scaled_dot_product_flash_attention_backward": "sdpa_cudnn_backward",
}
PASSES_OVER_SCORES = {"forward": 6.0, "backward": 8.0}
"""Phase -> how often attention without a fused kernel reads or writes its scores: scale, mask, softmax, dropout or
cast, and as operands of products."""
FUSED_BYTES = 0.25
"""Bytes that fused element-wise operators of blocks move, over those of PyTorch's separate ones; from predictions of
steps with and without torch.compile."""


def fused(operators: Operators) -> Operators:
    """Return the operators with the element-wise ones of blocks fused, as torch.compile and hand-written kernels do."""
    return tuple(
        replace(one, name="fused", bytes=round(FUSED_BYTES * one.bytes), layout="", is_compiled=True)
        if one.count > 1 and class_of(one) == "bytes" and one.phase != "optimizer"
        else one
        for one in operators
    )


def without_sending(operators: Operators) -> Operators:
    return tuple(one for one in operators if one.stream != "communication")


def products_again(operators: Operators) -> Iterator[Operator]:
    """Yield what selective checkpointing computes again: every second product of the blocks' forward pass."""
    of_blocks = [one for one in operators if one.phase == "forward" and one.count > 1]
    for one in [one for one in of_blocks if one.name in ("mm", "_scaled_mm")][1::2]:
        yield replace(one, phase="backward", is_again=True)


def with_fast_attention(operators: Operators, rates: Rates) -> Operators:
    """Return the operators with cuDNN's attention, as fast as FlashAttention 3, where the GPU has it."""
    if rates.hardware.device.chip.compute < (9, 0):
        return operators
    return tuple(replace(one, name=FAST_ATTENTION.get(one.name, one.name)) for one in operators)


def with_written_out_attention(operators: Operators) -> Operators:
    """Return the operators with attention as products and a softmax, as the math kernel and `eager` compute it."""
    return tuple(part for one in operators for part in (_written_out(one) if class_of(one) == "attention" else [one]))


def _written_out(one: Operator) -> Iterator[Operator]:
    query = next((shape for shape in one.shapes if len(shape) == 4), None)
    if query is None:
        yield one
        return
    batch, heads, context, width = query
    is_backward = "backward" in one.name
    scores = batch * heads * context * context  # of 2 bytes each
    product = replace(  # that of scores and that of values have the same FLOPs and bytes
        one,
        name="bmm",
        shapes=((batch * heads, context, width), (batch * heads, width, context)),
        flops=2 * scores * width,
        bytes=2 * (scores + 2 * batch * heads * context * width),
        layout="",
    )
    for _ in range(4 if is_backward else 2):  # backward has one for each operand of both products
        yield product
    passes = PASSES_OVER_SCORES["backward" if is_backward else "forward"]
    yield replace(one, name="mul", shapes=((scores,),), flops=0, bytes=round(passes * 2 * scores), layout="")


def in_dtype(operators: Operators, dtype: str) -> Operators:
    """Return the operators with all products of 16 or 8 bits in `float32` or `tf32`; their bytes roughly double."""
    return tuple(
        replace(one, dtype=dtype, bytes=2 * one.bytes, name="mm" if one.name == "_scaled_mm" else one.name)
        if one.name in PRODUCTS and one.dtype in ("bfloat16", "float16", "float8_e4m3fn")
        else one
        for one in operators
    )


def experts_in_float32(operators: Operators) -> Operators:
    return tuple(in_dtype((one,), "float32")[0] if "experts" in one.module else one for one in operators)


def without_gradients_of_weights(operators: Operators) -> Operators:
    """Return the operators of a step that trains no more than a small share of the weights: half of the products of
    backward, no optimizer, no exchange of gradients."""
    halved = (
        replace(one, count=max(1, one.count // 2)) if _is_halved(one) else one
        for one in operators
        if one.phase != "optimizer" and one.name != "reduce_scatter"
    )
    return tuple(halved)


def _is_halved(one: Operator) -> bool:
    """Whether it is a product of backward: one of each two is the gradient of a weight."""
    return one.phase == "backward" and one.name in PRODUCTS and not one.is_again and one.count > 1


def computed_again(operators: Operators) -> Operators:
    """Return the operators with the blocks of forward once more in backward: full activation checkpointing."""
    again = (
        replace(one, phase="backward", is_again=True)
        for one in operators
        if one.phase == "forward" and one.count > 1 and one.stream == "compute"
    )
    return (*operators, *again)
