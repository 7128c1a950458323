"""Matrix products: of linear layers in the three layouts of training, of attention written out, and of float8."""

from collections.abc import Callable, Iterator

import torch

from lmsweep.orchestrator.features.operators.cases import Case, Extent
from lmsweep.trials.model.float8 import float8_product

VOCABULARIES = (50304, 128256)
"""Vocabularies of GPT-2 (padded) and Llama 3."""
UNALIGNED = (50257, 50258, 50260)
"""Vocabularies whose rows are multiples of 2, 4 and 8 bytes in 16 bits: GPT-2's own, and its neighbours."""
UNALIGNED_LAYER = (4267, 1600)
"""A feed-forward layer of 8/3 of its inputs, not rounded."""
LAYOUTS = ("forward", "input_gradient", "weight_gradient")
"""x Wᵀ, y W and yᵀ x, with x (tokens, inputs), y (tokens, outputs) and W (outputs, inputs)."""
FEWEST_TOKENS = 256
FLOAT8 = {"fast": ("tensorwise", False), "rows": ("rowwise", False), "exact": ("tensorwise", True)}
"""Form of a float8 product -> recipe of its scales, and whether it is summed in float32. Forward is fast, with one
scale or one a row; backward of torchao's recipes is exact, with one scale."""


def product_cases(extent: Extent) -> Iterator[Case]:
    layers = dict.fromkeys(
        layer
        for width in extent.widths
        for layer in ((width, width), (3 * width, width), (4 * width, width), (width, 4 * width))
    )
    heads = [
        (vocabulary, width)
        for vocabulary in VOCABULARIES
        for width in extent.widths[::3]
        if vocabulary <= 16 * extent.width
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
        yield from _unaligned(extent)


def _unaligned(extent: Extent) -> Iterator[Case]:
    """Products some of whose rows cannot be read 16 bytes at a time, which float8 does not have."""
    heads = [(vocabulary, width) for vocabulary in UNALIGNED for width in extent.widths[::5]]
    for outputs, inputs in (UNALIGNED_LAYER, *heads):
        for tokens in extent.powers(4 * FEWEST_TOKENS, 4):
            for layout in LAYOUTS if outputs <= 16 * extent.width else ():
                yield _linear(extent, tokens, outputs, inputs, layout)


def _linear(extent: Extent, tokens: int, outputs: int, inputs: int, layout: str) -> Case:
    m, n, k = {
        "forward": (tokens, outputs, inputs),
        "input_gradient": (tokens, inputs, outputs),
        "weight_gradient": (outputs, inputs, tokens),
    }[layout]

    def make() -> Callable[[], object]:
        if layout == "forward":
            one, other = extent.random(m, k), extent.random(n, k).t()
        elif layout == "input_gradient":
            one, other = extent.random(m, k), extent.random(k, n)
        else:
            one, other = extent.random(k, m).t(), extent.random(k, n)
        out = torch.empty(m, n, dtype=extent.dtype, device=extent.device)
        return lambda: torch.mm(one, other, out=out)

    return Case(
        kind="product",
        name="mm",
        form=layout,
        shapes=((m, k), (k, n)),
        dtype=extent.type_name,
        bytes=extent.dtype.itemsize * (m * k + k * n + m * n),
        flops=2 * m * n * k,
        make=make,
    )


def _float8(extent: Extent, tokens: int, outputs: int, inputs: int) -> Iterator[Case]:
    """The products of a layer, whose operands have one layout. The gradients of inputs and of weights differ in their
    sizes only, so a size has one or the other, by turns."""
    by_turns = tokens.bit_length() % 2
    backward = (outputs, inputs, tokens) if by_turns else (tokens, inputs, outputs)
    for form, (recipe, exact) in FLOAT8.items():
        m, n, k = backward if exact else (tokens, outputs, inputs)

        def make(m: int = m, n: int = n, k: int = k, recipe: str = recipe, exact: bool = exact) -> Callable[[], object]:
            return float8_product(extent.random(m, k), extent.random(k, n), recipe, exact=exact)

        yield Case(
            kind="product",
            name="_scaled_mm",
            form=form,
            shapes=((m, k), (k, n)),
            dtype="float8_e4m3fn",
            bytes=m * k + k * n + 2 * m * n,
            flops=2 * m * n * k,
            make=make,
        )


def _batched(extent: Extent) -> Iterator[Case]:
    """Scores and weighted values of attention that is written out."""
    for head in (64, 128):
        for context in extent.powers(FEWEST_TOKENS)[:5]:
            batch = max(1, min(96, 2**27 // context**2))
            for form, m, n, k in (
                ("scores", context, context, head),
                ("values", context, head, context),
            ):
                yield _batch(extent, form, batch, m, n, k)


def _batch(extent: Extent, form: str, batch: int, m: int, n: int, k: int) -> Case:
    def make() -> Callable[[], object]:
        one = extent.random(batch, m, k)
        other = extent.random(batch, n, k).transpose(1, 2) if form == "scores" else extent.random(batch, k, n)
        return lambda: torch.bmm(one, other)

    return Case(
        kind="product",
        name="bmm",
        form=form,
        shapes=((batch, m, k), (batch, k, n)),
        dtype=extent.type_name,
        bytes=extent.dtype.itemsize * batch * (m * k + k * n + m * n),
        flops=2 * batch * m * n * k,
        make=make,
    )
