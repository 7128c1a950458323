"""The operators of attention between its projections: a fused kernel, or written out."""

from collections.abc import Iterator

from lmsweep.trials.analytic.flop_conventions import BACKWARD_OF_ATTENTION
from lmsweep.trials.analytic.formulas import attention_flops
from lmsweep.trials.analytic.model_operators.forms import Form, Row
from lmsweep.trials.analytic.packed_scores import share_of_packed_scores
from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.attentions import ATTENTIONS

LESS_LARGEST: dict[str, tuple[Row, ...]] = {
    "forward": (Row("max", 1, 1), Row("sub", 1, 2, "strided")),
    "backward": (Row("neg", 1, 2), Row("sum", 2, 1), Row("add_", 1, 3)),
}
EXPONENTIALS: dict[str, tuple[Row, ...]] = {
    "forward": (Row("exp", 1, 2), Row("sum", 1, 1), Row("div", 1, 2, "strided")),
    "backward": (Row("div", 4, 2, "strided"), Row("neg", 1, 2), Row("mul", 2, 3), Row("sum", 1, 1)),
}
SOFTMAX: dict[str, tuple[Row, ...]] = {
    "forward": (Row("_softmax", 1, 2),),
    "backward": (Row("_softmax_backward_data", 1, 3),),
}
"""Phase -> the operators of a softmax: written out, in two parts, or one kernel. They move items, not bytes."""


def attention_operators(
    form: Form,
    batch: int,
    heads: int,
    kv_heads: int,
    context: int,
    width: int,
    attention: str,
    causal: bool,
    window: int | None,
    document_length: int | None,
) -> Iterator[Operator]:
    """Yield one fused kernel or, of attention that stores its scores, its operators. width: of a head."""
    narrow, forward = form.narrow, form.is_forward
    if is_reference(attention) or ATTENTIONS[attention].stores_scores:
        yield from _written_out(form, batch * heads, context, width, attention)
        return
    way, is_masked = ATTENTIONS[attention], document_length is not None or window is not None
    if way.kernel is None and way.masked_by != "mask":
        name = f"{attention}_attention"
    elif narrow == 4 or way.kernel == "EFFICIENT_ATTENTION":
        name = "_scaled_dot_product_efficient_attention"
    elif way.uses_cudnn:
        name = "sdpa_cudnn_masked" if is_masked else "sdpa_cudnn"
    else:
        name = "_scaled_dot_product_flash_attention"
    flops = attention_flops(phase="forward", d_model=width * heads, context_length=context, batch_size=batch)
    if not (is_masked and way.masked_by == "mask"):
        flops *= share_of_packed_scores(
            "hardware", context_length=context, document_length=document_length or context, causal=causal, window=window
        )
    query, key = (batch, heads, context, width), (batch, kv_heads, context, width)
    moved = narrow * batch * context * width * (2 * heads + 2 * kv_heads)
    yield Operator(
        name=name + "_backward" * (not forward),
        shapes=(query, key, key) if forward else (query, query, key, key),
        dtype=form.dtype,
        bytes=moved if forward else 2 * moved,
        flops=round(flops if forward else BACKWARD_OF_ATTENTION["hardware"] * flops),
        phase=form.phase,
        module="",
        is_again=form.is_again,
        is_causal=causal and not is_masked,
        is_compiled=form.is_compiled,
        calls=form.calls,
    )


def _written_out(form: Form, heads: int, context: int, width: int, attention: str) -> Iterator[Operator]:
    """Yield the operators of attention that stores its scores. heads: number of heads of all sequences."""
    scores, narrow, forward = heads * context**2, form.narrow, form.is_forward
    is_math, is_naive = attention == "sdpa_math", attention == "naive" or is_reference(attention)
    dtype = "float32" if is_math and narrow == 2 else ""
    to_scores, from_scores = (heads, context, context, width), (heads, context, width, context)  # batch, m, n, k
    if forward:
        yield form.product(*to_scores, "nt", dtype=dtype)
        yield form.product(*from_scores, "nn", dtype=dtype)
    else:  # gradients of
        yield form.product(heads, context, width, context, "tn", dtype=dtype)  # values
        yield form.product(*to_scores, "nt", dtype=dtype)  # the scores' softmax
        yield form.product(heads, width, context, context, "tn", dtype=dtype)  # keys
        yield form.product(*from_scores, "nn", dtype=dtype)  # queries
    if form.is_compiled:
        size = 4 if is_math else narrow
        yield from form.rows(scores, Row("", 1, (2 if forward else 3) * size + 2 * is_math * forward))
        return
    yield from form.rows(context**2, Row("add", 3, 1))  # the mask, a byte each
    values = heads * context * width
    if is_math:
        copies = int(narrow == 2)
        yield from form.rows(values, Row("_to_copy", 4 * copies, 6), Row("mul", 2, 8), Row("clone", 1, 8))
        softmax = Row("add", 1, 8, "strided"), Row("_softmax", 1, 8), Row("_to_copy", copies, 6)
        yield from form.rows(scores, *(softmax if forward else (Row("_softmax_backward_data", 1, 12),)))
        return
    size = 4 if form.casts else narrow  # autocast's softmax is in float32
    cast = Row("_to_copy", int(form.casts), 6)
    yield from form.rows(values, Row("clone", 1, 2 * narrow), dtype=form.dtype)
    yield from form.rows(scores, Row("div", 1, 2 * narrow), Row("where", 1, 2 * narrow, "strided"), dtype=form.dtype)
    yield from form.rows(scores, cast, dtype=form.dtype)  # to float32
    yield from form.rows(scores, cast)  # and back
    phase = "forward" if forward else "backward"
    if is_naive:
        yield from form.rows(scores, *LESS_LARGEST[phase], dtype=form.dtype, size=narrow)
    kernels = (EXPONENTIALS if is_naive else SOFTMAX)[phase]
    yield from form.rows(scores, *kernels, dtype="float32" if size == 4 else form.dtype, size=size)
