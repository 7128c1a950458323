"""The operators of attention between its projections: a fused kernel, or written out."""

from collections.abc import Iterator

from lmsweep.trials.analytic.flop_conventions import BACKWARD_OF_ATTENTION
from lmsweep.trials.analytic.formulas import attention_flops
from lmsweep.trials.analytic.model_operators.forms import Form, Row
from lmsweep.trials.analytic.packed_scores import share_of_packed_scores
from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.attentions import ATTENTIONS


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
    if is_reference(attention) or ATTENTIONS[attention].stores_scores:
        yield from _written_out(form, batch * heads, context, width, attention)
        return
    is_masked, forward = document_length is not None or window is not None, form.is_forward
    flops = attention_flops(phase="forward", d_model=width * heads, context_length=context, batch_size=batch)
    if not (is_masked and ATTENTIONS[attention].masked_by == "mask"):
        flops *= share_of_packed_scores(
            "hardware", context_length=context, document_length=document_length or context, causal=causal, window=window
        )
    query, key = (batch, heads, context, width), (batch, kv_heads, context, width)
    moved = form.narrow * batch * context * width * (2 * heads + 2 * kv_heads)
    yield Operator(
        name=_kernel_name(attention, form.narrow, is_masked) + "_backward" * (not forward),
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


def _kernel_name(attention: str, narrow: int, is_masked: bool) -> str:
    way = ATTENTIONS[attention]
    if way.kernel is None and way.masked_by != "mask":
        return f"{attention}_attention"
    if narrow == 4 or way.kernel == "EFFICIENT_ATTENTION":
        return "_scaled_dot_product_efficient_attention"
    if way.uses_cudnn:
        return "sdpa_cudnn_masked" if is_masked else "sdpa_cudnn"
    return "_scaled_dot_product_flash_attention"


def _written_out(form: Form, heads: int, context: int, width: int, attention: str) -> Iterator[Operator]:
    """Yield the operators of attention that stores its scores. heads: number of heads of all sequences."""
    scores, values, narrow, forward = heads * context**2, heads * context * width, form.narrow, form.is_forward
    is_math, is_naive = attention == "sdpa_math", attention == "naive" or is_reference(attention)
    dtype = "float32" if is_math and narrow == 2 else ""
    first, second = (heads, context, context, width), (heads, context, width, context)
    if forward:
        yield form.product(*first, "nt", dtype=dtype)
        yield form.product(*second, "nn", dtype=dtype)
    else:  # gradients of values, of the scores' softmax, of keys, of queries
        yield form.product(heads, context, width, context, "tn", dtype=dtype)
        yield form.product(*first, "nt", dtype=dtype)
        yield form.product(heads, width, context, context, "tn", dtype=dtype)
        yield form.product(*second, "nn", dtype=dtype)
    if form.is_compiled:
        size = 4 if is_math else narrow
        yield from form.rows(scores, Row("", 1, (2 if forward else 3) * size + 2 * is_math * forward))
        return
    yield from form.rows(context**2, Row("add", 3, 1))  # the mask, a byte each
    if is_math:
        to_narrow = Row("_to_copy", 4 * (narrow == 2), 6)
        yield from form.rows(values, to_narrow, Row("mul", 2, 8), Row("clone", 1, 8))
        yield from form.rows(scores, *_math_softmax(form))
        return
    copy, size = Row("_to_copy", int(form.casts), 6), 4 if form.casts else narrow  # autocast's softmax is in float32
    yield from form.rows(values, Row("clone", 1, 2 * narrow), dtype=form.dtype)
    yield from form.rows(scores, Row("div", 1, 2 * narrow), Row("where", 1, 2 * narrow, "strided"), dtype=form.dtype)
    yield from form.rows(scores, copy, dtype=form.dtype)
    yield from form.rows(scores, copy)
    if is_naive:
        yield from form.rows(scores, *_less_their_largest(narrow, forward), dtype=form.dtype)
    softmax = _naive_softmax(size, forward) if is_naive else _softmax(size, forward)
    yield from form.rows(scores, *softmax, dtype="float32" if size == 4 else form.dtype)


def _math_softmax(form: Form) -> tuple[Row, ...]:
    if not form.is_forward:
        return (Row("_softmax_backward_data", 1, 12),)
    return Row("add", 1, 8, "strided"), Row("_softmax", 1, 8), Row("_to_copy", int(form.narrow == 2), 6)


def _softmax(size: int, forward: bool) -> tuple[Row, ...]:
    return (Row("_softmax", 1, 2 * size) if forward else Row("_softmax_backward_data", 1, 3 * size),)


def _less_their_largest(size: int, forward: bool) -> tuple[Row, ...]:
    if forward:
        return Row("max", 1, size), Row("sub", 1, 2 * size, "strided")
    return Row("neg", 1, 2 * size), Row("sum", 2, size), Row("add_", 1, 3 * size)


def _naive_softmax(size: int, forward: bool) -> tuple[Row, ...]:
    if forward:
        return Row("exp", 1, 2 * size), Row("sum", 1, size), Row("div", 1, 2 * size, "strided")
    return Row("div", 4, 2 * size, "strided"), Row("neg", 1, 2 * size), Row("mul", 2, 3 * size), Row("sum", 1, size)
