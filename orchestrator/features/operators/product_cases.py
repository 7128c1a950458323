"""Matrix products: of linear layers in the three layouts of training, of experts, of attention, and of float8."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from lmsweep.orchestrator.features.operators.cases import Call, Case, Extent, Make
from lmsweep.trials.analytic.rates.product_rates import EXPECTED
from lmsweep.trials.machine.torch_private import GROUPED_MM
from lmsweep.trials.model.float8 import float8_product

VOCABULARIES = (50304, 128256)
"""Vocabularies of GPT-2 (padded) and Llama 3."""
UNALIGNED = (50257, 50258, 50260)
"""Vocabularies whose rows of 16-bit numbers are aligned to 2, 4 and 8 bytes only: GPT-2's own, and its neighbours."""
UNALIGNED_LAYER = (4267, 1600)
"""Outputs and inputs of a feed-forward layer whose inner width is 8/3 of the model's, not rounded."""
EXPERTS = ((8, 4096, 14336), (32, 2880, 2880), (64, 2048, 1024), (128, 2048, 768))
"""Number, width and inner width of the experts of Mixtral, gpt-oss-20b, OLMoE and Qwen3-30B-A3B."""
TOP_K = 8
"""Experts to which each token is routed: the rows of a grouped product for each token."""
LAYOUTS = ("forward", "input_gradient", "weight_gradient")
"""x Wᵀ, g W and gᵀ x, with x (tokens, inputs), W (outputs, inputs) and g (tokens, outputs), the gradient of x Wᵀ."""
FEWEST_TOKENS = 256
MOST_SCORES, MOST_BATCH = 2**27, 96
"""Limits of attention without a fused kernel: elements of the scores, and sequences times heads."""
UNFUSED_CONTEXTS = 5
"""Number of contexts at which it is measured, up to 4096: models with longer ones use fused attention."""
MOST_OUTPUTS = 16
"""An output head with more outputs than this many times the largest width is not measured: on a CPU, where the sweep
has small widths, none is."""
FLOAT8 = {"fast": ("tensorwise", False), "rows": ("rowwise", False), "exact": ("tensorwise", True)}
"""Form of a float8 product -> recipe of its scales, and whether it is one of backward. Forward accumulates fast,
with tensorwise (`fast`) or rowwise (`rows`) scales. Backward of torchao's recipes accumulates in float32 (`exact`)."""


def product_cases(extent: Extent) -> Iterator[Case]:
    layers = dict.fromkeys(
        layer
        for width in extent.widths
        for layer in ((width, width), (3 * width, width), (4 * width, width), (width, 4 * width))
    )
    heads = [
        (vocabulary, width)
        for vocabulary in VOCABULARIES
        for width in extent.widths[::3]  # every third: output heads take longest
        if vocabulary <= MOST_OUTPUTS * extent.width
    ]
    for outputs, inputs in (*layers, *heads):
        for tokens in extent.powers(FEWEST_TOKENS):
            if not extent.recipe:
                for layout in LAYOUTS:
                    yield _linear(extent, tokens, outputs, inputs, layout)
            elif outputs not in VOCABULARIES:
                yield from _float8(extent, tokens, outputs, inputs)
    if not extent.recipe:
        yield from _batched(extent)
        if extent.dtype == torch.bfloat16:  # PyTorch runs other types as a loop of products
            yield from _grouped(extent)
        yield from _unaligned(extent)


def _unaligned(extent: Extent) -> Iterator[Case]:
    """Products with rows that are not aligned to 16 bytes, over fewer sizes. Float8 kernels do not support them."""
    heads = [(vocabulary, width) for vocabulary in UNALIGNED for width in extent.widths[::5]]
    for outputs, inputs in (UNALIGNED_LAYER, *heads):
        for tokens in extent.powers(4 * FEWEST_TOKENS, 4):
            for layout in LAYOUTS if outputs <= MOST_OUTPUTS * extent.width else ():
                yield _linear(extent, tokens, outputs, inputs, layout)


def _grouped(extent: Extent) -> Iterator[Case]:
    """Grouped products of experts, over fewer numbers of tokens than those of layers."""
    experts = [one for one in EXPERTS if one[1] <= extent.width] or [(8, extent.width, extent.width)]
    for groups, width, inner in experts:
        for outputs, inputs in ((2 * inner, width), (width, inner)):  # gate and up in one product, then down
            for tokens in extent.powers(4 * FEWEST_TOKENS, 4):
                for layout in LAYOUTS:
                    yield _of_experts(extent, groups, TOP_K * tokens, outputs, inputs, layout)


def _of_experts(extent: Extent, groups: int, rows: int, outputs: int, inputs: int, layout: str) -> Case:
    """A grouped product, with an uneven load of experts as EXPECTED. Weights are (groups, outputs, inputs)."""
    # The shapes of the operands that the product sees, after `make` has transposed one.
    one, other = {
        "forward": ((rows, inputs), (groups, inputs, outputs)),
        "input_gradient": ((rows, outputs), (groups, outputs, inputs)),
        "weight_gradient": ((outputs, rows), (rows, inputs)),
    }[layout]

    def make() -> Call:
        if layout == "forward":
            x, y = extent.random(rows, inputs), extent.random(groups, outputs, inputs).transpose(1, 2)
        elif layout == "input_gradient":
            x, y = extent.random(rows, outputs), extent.random(groups, outputs, inputs)
        else:
            x, y = extent.random(rows, outputs).t(), extent.random(rows, inputs)
        loads = torch.tensor([EXPECTED[i % len(EXPECTED)] for i in range(groups)], device=extent.device)
        # The row at which each expert's rows end.
        ends = (loads.cumsum(0) * rows / loads.sum()).round().int()
        return lambda: GROUPED_MM(x, y, ends)

    moved = extent.dtype.itemsize * (rows * inputs + groups * inputs * outputs + rows * outputs)
    return _case(extent, "_grouped_mm", layout, (one, other, (groups,)), moved, 2 * rows * inputs * outputs, make)


def _linear(extent: Extent, tokens: int, outputs: int, inputs: int, layout: str) -> Case:
    m, n, k = {
        "forward": (tokens, outputs, inputs),
        "input_gradient": (tokens, inputs, outputs),
        "weight_gradient": (outputs, inputs, tokens),
    }[layout]

    def make() -> Call:
        if layout == "forward":
            one, other = extent.random(m, k), extent.random(n, k).t()
        elif layout == "input_gradient":
            one, other = extent.random(m, k), extent.random(k, n)
        else:
            one, other = extent.random(k, m).t(), extent.random(k, n)
        out = torch.empty(m, n, dtype=extent.dtype, device=extent.device)
        return lambda: torch.mm(one, other, out=out)

    moved = extent.dtype.itemsize * (m * k + k * n + m * n)
    return _case(extent, "mm", layout, ((m, k), (k, n)), moved, 2 * m * n * k, make)


def _float8(extent: Extent, tokens: int, outputs: int, inputs: int) -> Iterator[Case]:
    """Yield a layer's product of forward in each form, and one of backward. All have the same layout of operands. The
    gradients of inputs and of weights differ in their sizes only, so numbers of tokens have them by turns."""
    is_of_weights = tokens.bit_length() % 2  # tokens are powers of two: every second one
    backward = (outputs, inputs, tokens) if is_of_weights else (tokens, inputs, outputs)
    for form, (recipe, as_backward) in FLOAT8.items():
        m, n, k = backward if as_backward else (tokens, outputs, inputs)

        def make(m: int = m, n: int = n, k: int = k, recipe: str = recipe, as_backward: bool = as_backward) -> Call:
            return float8_product(extent.random(m, k), extent.random(k, n), recipe, as_backward=as_backward)

        moved = m * k + k * n + 2 * m * n  # operands of one byte, results of two
        one = _case(extent, "_scaled_mm", form, ((m, k), (k, n)), moved, 2 * m * n * k, make)
        yield replace(one, dtype="float8_e4m3fn")


def _batched(extent: Extent) -> Iterator[Case]:
    """Scores and weighted values of attention without a fused kernel."""
    for head in (64, 128):
        for context in extent.powers(FEWEST_TOKENS)[:UNFUSED_CONTEXTS]:
            batch = max(1, min(MOST_BATCH, MOST_SCORES // context**2))
            for form, m, n, k in (
                ("scores", context, context, head),
                ("values", context, head, context),
            ):
                yield _batch(extent, form, batch, m, n, k)


def _batch(extent: Extent, form: str, batch: int, m: int, n: int, k: int) -> Case:
    def make() -> Call:
        one = extent.random(batch, m, k)
        other = extent.random(batch, n, k).transpose(1, 2) if form == "scores" else extent.random(batch, k, n)
        return lambda: torch.bmm(one, other)

    moved = extent.dtype.itemsize * batch * (m * k + k * n + m * n)
    return _case(extent, "bmm", form, ((batch, m, k), (batch, k, n)), moved, 2 * batch * m * n * k, make)


def _case(
    extent: Extent, name: str, form: str, shapes: tuple[tuple[int, ...], ...], moved: int, flops: int, make: Make
) -> Case:
    kind, dtype = "product", extent.type_name
    return Case(kind=kind, name=name, form=form, shapes=shapes, dtype=dtype, bytes=moved, flops=flops, make=make)
