"""Fused attention by kernel, context, head width and mask: forward with what backward needs, and backward."""

from collections.abc import Iterator, Sequence

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from lmsweep.orchestrator.features.operators.cases import Call, Case, Extent

KERNELS = {
    "_scaled_dot_product_flash_attention": SDPBackend.FLASH_ATTENTION,
    "_scaled_dot_product_efficient_attention": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
}
"""Name of an operator -> the kernel that PyTorch must use."""
BATCH_TOKENS = 16384
"""Tokens of a batch; a longer sequence is a batch of one."""
HEADS_WIDTH = 2048
"""Width of all heads together."""
HEAD_WIDTHS = (64, 80, 96, 128, 256)
"""Each kernel is measured at those that it has here (`_runs`)."""
BACKWARD_WORK = 2.5
"""FLOPs of backward per FLOP of forward: forward has two products, backward five, since it computes scores again."""
SMALL_MODEL = (4, 12, 64)
"""Batch, heads and head width of a small model: too little work to fill a GPU at short contexts."""
SHORT_CONTEXTS = 4
"""SMALL_MODEL is measured at this many of the shortest contexts; at longer ones it fills the GPU, too."""


def attention_cases(extent: Extent) -> Iterator[Case]:
    if extent.recipe:
        return  # float8 is for linear layers
    for name, kernel in KERNELS.items():
        able = {head for head in HEAD_WIDTHS if _runs(extent, kernel, head)}
        for batch, heads, context, head in _shapes(extent):
            for is_causal in (True, False) if head in (64, 128) else (True,):  # the usual widths
                if head in able:
                    yield from _both(extent, name, kernel, (batch, heads, context, head), is_causal=is_causal)


def _shapes(extent: Extent) -> Iterator[tuple[int, int, int, int]]:
    """Yield batch, heads, context and width of a head."""
    for head in (one for one in HEAD_WIDTHS if one <= extent.width):
        heads = max(1, min(HEADS_WIDTH, extent.width) // head)
        for context in extent.powers(256):
            yield max(1, min(BATCH_TOKENS, extent.tokens) // context), heads, context, head
    batch, heads, head = SMALL_MODEL
    for context in extent.powers(256)[:SHORT_CONTEXTS]:
        yield batch, heads, context, head


def _runs(extent: Extent, kernel: SDPBackend, head: int) -> bool:
    """Return whether PyTorch has this kernel here, tried with few positions."""
    try:
        _operands(extent, kernel, (1, 1, 128, head), is_causal=True, backward=True)()
    except RuntimeError:
        return False
    return True


def _both(
    extent: Extent, name: str, kernel: SDPBackend, shape: tuple[int, int, int, int], *, is_causal: bool
) -> Iterator[Case]:
    batch, heads, context, head = shape
    flops = 4 * batch * heads * context**2 * head // (2 if is_causal else 1)
    tensor_bytes = extent.dtype.itemsize * batch * heads * context * head
    for backward in (False, True):

        def make(backward: bool = backward) -> Call:
            return _operands(extent, kernel, shape, is_causal=is_causal, backward=backward)

        yield Case(
            kind="attention",
            name=f"{name}_backward" if backward else name,
            shapes=(shape,) * (4 if backward else 3),
            dtype=extent.type_name,
            bytes=tensor_bytes * (8 if backward else 4),  # q, k, v, output; in backward the gradient of each, too
            flops=round(flops * (BACKWARD_WORK if backward else 1)),
            is_causal=is_causal,
            is_cold=False,
            make=make,
        )


def _operands(extent: Extent, kernel: SDPBackend, shape: Sequence[int], *, is_causal: bool, backward: bool) -> Call:
    """Make queries, keys and values of this shape, and return the call of forward or of backward."""
    q, k, v = inputs = [extent.random(*shape).requires_grad_() for _ in range(3)]

    def forward() -> torch.Tensor:
        with sdpa_kernel(kernel):
            return scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    if not backward:
        return forward
    output, gradient = forward(), extent.random(*shape)
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)
