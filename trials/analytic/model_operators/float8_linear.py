"""A linear layer in float8: its products and the rounding of their operands, as `float8_operators` has torchao's."""

from collections.abc import Iterator
from dataclasses import replace

from lmsweep.trials.analytic.model_operators.forms import Form, Row
from lmsweep.trials.analytic.rates.operators import Operator

FLOAT8 = "float8_e4m3fn"
COLUMNS = "amax_columns"
RESCALED_WEIGHT, RESCALED_INPUT = 18, 20
"""Bytes that stand for the time in which compiled code multiplies an element of a gradient by its scales: several
times those that it moves, as it finds the scales again (`RESCALING` of `float8_operators`)."""


def float8_linear(
    form: Form, recipe: str, tokens: int, inputs: int, outputs: int, *, is_first: bool, is_last: bool
) -> Iterator[Operator]:
    """Yield the operators of one layer. is_first: whether no layer before rounded the same input. is_last: whether the
    gradient of its output is rounded by the kernel that made it. Bytes of an element: 4 or 2 where the largest is
    searched in float32 or in 16 bits, one more where it is rounded, two more where it is also transposed."""
    by_rows, forward = recipe != "tensorwise", form.is_forward
    input, weight, gradient = tokens * inputs, inputs * outputs, tokens * outputs
    largest = "amax" if by_rows else "max_all"
    if forward:
        if form.is_compiled and by_rows:
            yield from form.rows(weight, Row("", 1, 5))
        elif form.is_compiled:
            yield from form.rows(input, Row("", is_first, 2), Row("", is_first, 3), dtype=form.dtype)
            yield from form.rows(weight, Row("", 1, 4), Row("", 1, 5))
            yield from form.rows(1, Row("", 1 + is_first, 8))
        else:
            yield from _rounded(form, input, 2, largest, recipe, transposed=False)
            yield from _rounded(form, weight, 4, largest, recipe, transposed=False)
        yield _product(form, tokens, outputs, inputs, "rows" if by_rows else "fast")
        return
    in_16_bits = recipe == "rowwise_with_gw_hp"
    if in_16_bits:
        yield form.product(1, inputs, outputs, tokens, "tn")
    else:
        yield _product(form, inputs, outputs, tokens, "exact")
    yield _product(form, tokens, inputs, outputs, "exact")
    if form.is_compiled:
        if not in_16_bits:
            rows: tuple[Row, ...] = (Row("", 1, 4), Row("", 1, 5)) if by_rows else (Row("", 1, 3),)
            yield from form.rows(input, *(rows if is_first else ()), dtype=form.dtype)
            yield from form.rows(gradient, Row("", not is_last, 2), Row("", not is_last, 4), dtype=form.dtype)
            yield from form.rows(1, Row("", 2, 8))
        yield from form.rows(weight, Row("", int(by_rows), 4), Row("", 1, 5))
        if by_rows:
            yield from form.rows(input, Row("", 1, RESCALED_INPUT), dtype=form.dtype)
            yield from form.rows(weight, Row("", 1, 6 if in_16_bits else RESCALED_WEIGHT), dtype=form.dtype)
        else:
            yield from form.rows(weight, Row("", 1, 6), dtype=form.dtype)
        return
    if not in_16_bits:
        for elements in (gradient, input):
            yield from _rounded(form, elements, 2, COLUMNS if by_rows else largest, recipe, transposed=True)
    yield from _rounded(form, gradient, 2, largest, recipe, transposed=False)
    columns = COLUMNS if recipe == "rowwise" else "max_all"
    yield from _rounded(form, weight, 4, columns, recipe, transposed=True)
    if by_rows:
        for elements in (input, weight)[: 1 if in_16_bits else 2]:
            yield from form.rows(elements, Row("mul", 1, 4))
            yield from form.rows(elements, Row("mul_", 1, 8), dtype=form.dtype)
    yield from form.rows(weight, Row("_to_copy", 1, 6), dtype=form.dtype)


def _rounded(
    form: Form, elements: int, item: int, largest: str, recipe: str, *, transposed: bool
) -> Iterator[Operator]:
    """Yield the operators that scale and round an operand, without a compiler."""
    dtype = "float32" if item == 4 else form.dtype
    yield from form.rows(elements, Row("abs", 1, 2 * item), Row(largest, 1, item), dtype=dtype)
    yield from form.rows(elements, Row("_to_copy", int(item == 2), 6), dtype=form.dtype)
    yield from form.rows(elements, Row("mul", 1, 8), Row("clamp", 1, 8))
    yield from form.rows(elements, Row("_to_copy", 1, 5), Row("clone", int(transposed), 2), dtype=FLOAT8)
    yield from form.rows(1, Row("mul", 6 if recipe == "tensorwise" else 9, 16))


def _product(form: Form, m: int, n: int, k: int, layout: str) -> Operator:
    found = form.product(1, m, n, k, layout)
    return replace(found, name="_scaled_mm", dtype=FLOAT8, bytes=m * k + k * n + 2 * m * n)
