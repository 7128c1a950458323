"""The operators of a block of lmsweep's model, without attention between its projections."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from lmsweep.trials.analytic.formulas import Dimensions
from lmsweep.trials.analytic.model_operators.float8_linear import float8_linear
from lmsweep.trials.analytic.model_operators.forms import Form, Row
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


class _Linear(NamedTuple):
    """A linear layer, or `copies` of it: one for each expert."""

    rows: int
    inputs: int
    outputs: int
    is_first: bool = True
    """Whether no layer before it reads the same input."""
    is_last: bool = False
    """Whether it ends attention or the feed-forward; each other one follows a norm."""
    copies: int = 1


def block_operators(form: Form, tokens: int, model: Dimensions) -> Iterator[Operator]:
    """Yield the operators of a block, without attention between its projections. Rows and bytes are those of recorded
    steps."""
    if form.is_compiled:
        yield from _fused_rows(form, tokens, model)
    else:
        yield from (_forward_rows if form.is_forward else _backward_rows)(form, tokens, model)
    recipe = PRECISIONS[form.precision].float8_recipe
    for rows, inputs, outputs, is_first, is_last, copies in _linears(tokens, model):
        if recipe is None or copies > 1:
            yield from linear_operators(form, rows, inputs, outputs, not is_last, copies)
            continue
        yield from form.rows(rows * inputs, Row("_to_copy", not (is_last or form.is_compiled), 6))
        yield from float8_linear(form, recipe, rows, inputs, outputs, is_first=is_first, is_last=is_last)
    if model.router:
        yield from linear_operators(form, tokens, model.d_model, model.experts, True)
        yield from _routing(form, tokens * model.d_model * model.active_experts, model.matrices - 1)


def _linears(tokens: int, model: Dimensions) -> list[_Linear]:
    d, f, experts = model.d_model, model.d_ff, model.experts
    tokens_of_expert = max(1, tokens * model.active_experts // experts)
    gate = _Linear(tokens_of_expert, d, f, copies=experts)
    key_or_value = _Linear(tokens, d, model.key_width, is_first=False)
    return [
        *(_Linear(tokens, d, model.query_width), key_or_value, key_or_value),
        _Linear(tokens, model.query_width, d, is_last=True),
        *(gate, *[gate._replace(is_first=False)] * (model.matrices - 2)),  # SwiGLU has two with the same input
        _Linear(tokens_of_expert, f, d, is_last=True, copies=experts),
    ]


def _forward_rows(form: Form, tokens: int, model: Dimensions) -> Iterator[Operator]:
    wide, narrow, gates = form.wide, form.narrow, model.matrices - 1
    hidden, rotated = tokens * model.d_model, tokens * sum(model.widths)
    inner = tokens * model.active_experts * model.d_ff
    yield from form.rows(hidden, *NORM["forward"], repeats=2)
    yield from form.rows(hidden, Row("_to_copy", 4 * (wide == 2), 6))  # in 16 bits norms cast their input and result
    yield from form.rows(rotated / 2, *(NORM["forward"] if model.norm_width else ()), repeats=2)  # of queries, of keys
    yield from form.rows(tokens, Row("add", 4, 8))  # the norms' epsilon and reciprocal root
    pairs = rotated / 4  # of elements, for the rotary embedding; the mean of queries and keys
    layout = "strided_cast" if narrow == 2 else "strided"
    yield from form.rows(pairs, Row("mul", 8, narrow + 4, layout), dtype=form.dtype)
    yield from form.rows(pairs, Row("add", 4, 12))
    yield from form.rows(2 * pairs, Row("stack", 2, 8), Row("_to_copy", 2 * (narrow == 2), 6))
    gate = Row("gelu", 1, 2 * narrow), Row("mul", 2 * (gates - 1), 3 * narrow)
    yield from form.rows(inner, *gate, dtype=form.dtype)
    yield from form.rows(hidden, Row("add", 2, 2 * wide + narrow, "cast" * form.casts))  # each residual's sum
    heads = tokens * model.query_width
    yield from form.rows(heads, Row("clone", 1, 2 * narrow), dtype=form.dtype)  # side by side


def _backward_rows(form: Form, tokens: int, model: Dimensions) -> Iterator[Operator]:
    wide, narrow, gates = form.wide, form.narrow, model.matrices - 1
    hidden, rotated = tokens * model.d_model, tokens * sum(model.widths)
    inner, heads = tokens * model.active_experts * model.d_ff, tokens * model.key_width
    yield from form.rows(hidden, Row("_to_copy", 2 * form.casts + 4 * (wide == 2), 6))  # as in forward, and residuals
    yield from form.rows(hidden, Row("add_", 2 + gates - 1, 3 * wide))
    yield from form.rows(hidden, *NORM["backward"], repeats=2)
    yield from form.rows(rotated / 2, *(NORM["backward"] if model.norm_width else ()), repeats=2)
    yield from form.rows(tokens, Row("add", 6, 8))  # the norms' epsilon and reciprocal root
    pairs = rotated / 4  # for the rotary embedding, as in forward
    casts = Row("_to_copy", 2 * (narrow == 2), 6), Row("add_", 2, 3 * narrow)
    yield from form.rows(2 * pairs, *casts, dtype=form.dtype)
    yield from form.rows(pairs, Row("mul", 8, 8, "strided"), Row("neg", 2, 8, "strided"))
    yield from form.rows(pairs, Row("_to_copy", 8 * (narrow == 2), 6))
    yield from form.rows(pairs, Row("add_", 4, 3 * narrow), Row("slice_backward", 4, 4 * narrow), dtype=form.dtype)
    gate = Row("mul", 6, 3 * narrow) if gates == 2 else Row("gelu", 1, 3 * narrow)
    yield from form.rows(inner, gate, dtype=form.dtype)
    yield from form.rows(heads, Row("clone", 2, 2 * narrow), dtype=form.dtype)  # of keys, of values


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


def _fused_rows(form: Form, tokens: int, model: Dimensions) -> Iterator[Operator]:
    """Yield the kernels that Inductor generates for a block: for norms and residuals (`hidden`), the rotary embedding,
    the gate (`inner`), and heads beside each other (`merged`)."""
    wide, narrow, gates = form.wide, form.narrow, model.matrices - 1
    hidden, rotated, merged = tokens * model.d_model, tokens * sum(model.widths), tokens * model.query_width
    inner = tokens * model.active_experts * model.d_ff
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
        yield form.product(experts, inputs, outputs, tokens, "tn")  # the gradient of the weight
        yield form.product(experts, tokens, inputs, outputs, "nn")  # of the input
        yield from form.rows(weight, copy, dtype=form.dtype)
        yield from form.rows(input, copy, dtype=form.dtype) if is_wide and not form.is_compiled else ()
