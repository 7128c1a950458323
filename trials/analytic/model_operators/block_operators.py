"""The operators of a block of lmsweep's model, without attention between its projections."""

from collections.abc import Iterator
from dataclasses import replace

from lmsweep.trials.analytic.model_operators.float8_linear import float8_linear
from lmsweep.trials.analytic.model_operators.forms import Form, Row, repeated
from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.spec.ways.precisions import PRECISIONS

NORM: dict[str, tuple[Row, ...]] = {
    "forward": (Row("pow", 1, 8), Row("mean", 1, 4), Row("mul", 2, 8, "strided")),
    "backward": (
        *(Row("mul", 3, 12), Row("mul", 2, 8, "strided"), Row("sum", 2, 4), Row("add_", 2, 12)),
        *(Row("div", 1, 4, "strided"), Row("pow", 2, 8)),
    ),
}
"""Phase -> the operators of an RMSNorm that is written out, in float32."""


def block_operators(
    form: Form,
    tokens: int,
    d_model: int,
    d_ff: int,
    query_width: int,
    key_width: int,
    norm_width: int,
    matrices: int,
    experts: int,
    active: int,
    router: int,
) -> Iterator[Operator]:
    """Yield the operators of a block, without attention between its projections.

    query_width, key_width: of all heads; norm_width: of the norms of queries and keys, 0 without; matrices: of the
    feed-forward; active: experts of each token; router: 0 without experts. Rows and bytes are those of recorded steps.
    """
    hidden, inner, rotated = tokens * d_model, tokens * active * d_ff, tokens * (query_width + key_width)
    each, gates, wide, narrow = tokens * active // experts or 1, matrices - 1, form.wide, form.narrow
    pure = wide == 2  # all in 16 bits: norms cast their input, and their result back
    if form.is_compiled:
        yield from _fused_rows(form, hidden, inner, rotated, tokens * query_width, gates)
    elif form.is_forward:
        yield from form.rows(hidden, *repeated(NORM["forward"], 2), Row("_to_copy", 4 * pure, 6))
        yield from form.rows(rotated / 2, *(repeated(NORM["forward"], 2) if norm_width else ()))  # of queries, of keys
        yield from form.rows(tokens, Row("add", 4, 8))  # the norms' epsilon and reciprocal root
        half = rotated / 4  # the rotary embedding of queries or keys, whose elements it takes in pairs
        layout = "strided_cast" if narrow == 2 else "strided"
        yield from form.rows(half, Row("mul", 8, narrow + 4, layout), dtype=form.dtype)
        yield from form.rows(half, Row("add", 4, 12))
        yield from form.rows(2 * half, Row("stack", 2, 8), Row("_to_copy", 2 * (narrow == 2), 6))
        yield from form.rows(
            inner, Row("gelu", 1, 2 * narrow), Row("mul", 2 * (gates - 1), 3 * narrow), dtype=form.dtype
        )
        yield from form.rows(hidden, Row("add", 2, 2 * wide + narrow, "cast" * form.casts))  # each residual's sum
        yield from form.rows(tokens * query_width, Row("clone", 1, 2 * narrow), dtype=form.dtype)  # heads side by side
    else:  # the gradients of the same
        yield from form.rows(
            hidden, Row("_to_copy", 2 * form.casts + 4 * pure, 6), Row("add_", 2 + gates - 1, 3 * wide)
        )
        yield from form.rows(hidden, *repeated(NORM["backward"], 2))
        yield from form.rows(rotated / 2, *(repeated(NORM["backward"], 2) if norm_width else ()))
        yield from form.rows(tokens, Row("add", 6, 8))  # the norms' epsilon and reciprocal root
        half = rotated / 4  # the rotary embedding, as in forward
        yield from form.rows(
            2 * half, Row("_to_copy", 2 * (narrow == 2), 6), Row("add_", 2, 3 * narrow), dtype=form.dtype
        )
        yield from form.rows(half, Row("mul", 8, 8, "strided"), Row("neg", 2, 8, "strided"))
        yield from form.rows(half, Row("_to_copy", 8 * (narrow == 2), 6))
        yield from form.rows(half, Row("add_", 4, 3 * narrow), Row("slice_backward", 4, 4 * narrow), dtype=form.dtype)
        gating: tuple[Row, ...] = (Row("mul", 6, 3 * narrow),) if gates == 2 else (Row("gelu", 1, 3 * narrow),)
        yield from form.rows(inner, *gating, dtype=form.dtype)
        yield from form.rows(tokens * key_width, Row("clone", 2, 2 * narrow), dtype=form.dtype)  # of keys, of values
    widths = [query_width, key_width, key_width]
    linears = [(tokens, d_model, width, 1) for width in widths] + [(tokens, query_width, d_model, 1)]
    linears += [(each, d_model, d_ff, experts)] * gates + [(each, d_ff, d_model, experts)]
    recipe = PRECISIONS[form.precision].float8_recipe
    for place, (rows, inputs, outputs, copies) in enumerate(linears):
        after_norm = place not in (3, len(linears) - 1)  # all but the last ones of attention and of the feed-forward
        if recipe is None or copies > 1:
            yield from linear_operators(form, rows, inputs, outputs, after_norm, copies)
            continue
        yield from form.rows(rows * inputs, Row("_to_copy", after_norm and not form.is_compiled, 6))
        is_first = place in (0, 3, 4, len(linears) - 1)  # the others read the same input as the one before
        yield from float8_linear(form, recipe, rows, inputs, outputs, is_first=is_first, is_last=not after_norm)
    if router:
        yield from linear_operators(form, tokens, d_model, experts, True)
        yield from _routing(form, hidden * active, gates)


def _routing(form: Form, routed: int, gates: int) -> Iterator[Operator]:
    """Yield what brings tokens to experts and sums their results. routed: elements of all tokens of all experts."""
    wide, narrow, casts = form.wide, form.narrow, form.casts
    dtype = form.dtype if wide == 2 else "float32"
    if form.is_compiled:
        moved = (narrow, narrow + wide) if form.is_forward else (wide, 2 * wide)
        rows = [Row("", 1, each + 0.5) for each in moved]
    elif form.is_forward:
        rows = [Row("index", 1, 2 * wide), Row("mul", 1, narrow + wide, "strided" + "_cast" * casts)]
    else:
        rows = [Row("index_select", 1, 2 * wide), Row("mul", 1, 2 * wide + narrow, "cast" * casts)]
        rows += [Row("mul", 1, 2 * wide, "strided"), Row("_to_copy", int(casts), 6), Row("sum", 1, wide)]
        rows += [Row("add_", gates - 1, 3 * wide)]
    yield from form.rows(routed, *rows, dtype=dtype)
    # index_add: bytes as where it was measured, with eight rows added to each sum, which is read and written. The other
    # operator: bytes as `moved_bytes` counts them.
    name, each = ("index_add", (1 + 2 / 8) * wide) if form.is_forward else ("index_put_", 3 * wide)
    for one in form.rows(routed, Row(name, 1, each), dtype=dtype):
        yield replace(one, name=name)  # compiled code calls these kernels, too


def _fused_rows(form: Form, hidden: int, inner: int, rotated: int, merged: int, gates: int) -> Iterator[Operator]:
    """Yield the kernels that Inductor generates for a block: for norms and residuals (`hidden`), the rotary embedding,
    the gate (`inner`), and heads beside each other (`merged`). Bytes are those of recorded steps."""
    wide, narrow = form.wide, form.narrow
    if form.is_forward:
        rows: list[tuple[int, Row]] = [(hidden, Row("", 1, wide + narrow)), (hidden, Row("", 1, 2 * (wide + narrow)))]
        rows += [(hidden, Row("", 1, 2 * wide + narrow)), (rotated, Row("", 1, 2 * narrow + (narrow == 2)))]
        rows += [(inner, Row("", 1, (gates + 1) * narrow)), (merged, Row("", 1, 2 * narrow))]
    else:
        rows = [(rotated, Row("", 1, 2 * narrow)), (merged, Row("", 2, 2 * narrow)), (hidden, Row("", 2, 4))]
        rows += [(hidden, Row("", 2, 5 * wide + 2.5 * narrow)), (hidden, Row("", int(form.casts), 6))]
        rows += [(inner, Row("", 1, (2 * gates + 1) * narrow))]
    for place, (elements, row) in enumerate(rows):
        for one in form.rows(elements, row, dtype=form.dtype if wide == 2 else "float32"):
            yield replace(one, calls=form.calls) if not place else one


def linear_operators(
    form: Form, tokens: int, inputs: int, outputs: int, is_wide: bool = True, experts: int = 1
) -> Iterator[Operator]:
    """Yield the products of a linear layer, and autocast's copies. is_wide: whether its input still has to be cast."""
    copy: Row = Row("_to_copy", int(form.casts), 6)
    weight, input = experts * inputs * outputs, experts * tokens * inputs
    if form.is_forward:
        yield from form.rows(weight, copy)
        yield from form.rows(input, copy) if is_wide and not form.is_compiled else ()
        yield form.product(experts, tokens, outputs, inputs, "nt")
    else:
        yield form.product(experts, inputs, outputs, tokens, "tn")
        yield form.product(experts, tokens, inputs, outputs, "nn")
        yield from form.rows(weight, copy, dtype=form.dtype)
        yield from form.rows(input, copy, dtype=form.dtype) if is_wide and not form.is_compiled else ()
