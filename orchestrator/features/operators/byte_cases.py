"""Operators whose time is that of the bytes they move: element-wise, norms, embeddings, routing, optimizers."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn import functional

from lmsweep.orchestrator.features.operators.cases import Call, Case, Extent, Make
from lmsweep.trials.machine.torch_private import LOG_SOFTMAX_BACKWARD, SOFTMAX_BACKWARD

aten = torch.ops.aten
ROW = 1024
"""Elements of a row that is normalized."""
HEAD = 128
"""Width of a norm of heads: the gradient of its weight is summed over all rows."""
VOCABULARY = 32768
"""Rows of the embedding, fewer at small sizes, and logits of a token."""
EXPERTS, TOP_K = 128, 8
"""Experts, and to how many of them a token is routed."""
CACHED_BYTES = 2**25
"""Operands up to this size are also timed where the last call left them in the L2 cache."""


def byte_cases(extent: Extent) -> Iterator[Case]:
    """Yield cases whose operands have up to `tokens` times `width` elements. Of float8, only its casts."""
    if extent.recipe:
        yield from _casting(extent)
        return
    for size in _sizes(extent):
        for is_cold in _is_cold(extent, size):
            yield from _sums(extent, size, is_cold=is_cold)
            yield from _other_element_wise(extent, size, is_cold=is_cold)
            yield from _normalizing(extent, size, is_cold=is_cold)
    for size in _sizes(extent):
        yield from _embedding(extent, size)
        yield from _routing(extent, size)
        yield from _optimizers(extent, size)
        yield from _four_bits(extent, size)


def _sizes(extent: Extent) -> list[int]:
    """Return numbers of elements: 2**14 times powers of 4, up to `tokens` times `width`."""
    size = 2**14
    sizes: list[int] = []
    while size <= extent.tokens * extent.width or not sizes:
        sizes.append(size)
        size *= 4
    return sizes


def _is_cold(extent: Extent, size: int) -> tuple[bool, ...]:
    """Return the values of `Case.is_cold` with which operators on so many elements are timed."""
    return (True, False) if size * extent.dtype.itemsize <= CACHED_BYTES else (True,)


def _case(extent: Extent, name: str, size: int, moved: float, make: Make, **more: Any) -> Case:
    """Return a case of one operand of `size` elements, unless `more` has other fields. moved: bytes."""
    fields = {"kind": "bytes", "dtype": str(extent.dtype).removeprefix("torch."), "shapes": ((size,),)} | more
    return Case(name=name, bytes=round(moved), flops=0, make=make, **fields)


def _call(extent: Extent, function: Callable[..., object], *shapes: tuple[int, ...]) -> Make:
    """Return the `make` of a case: it makes random operands of these shapes, and returns the function with them."""
    return lambda: partial(function, *(extent.random(*shape) for shape in shapes))


def _sums(extent: Extent, size: int, *, is_cold: bool) -> Iterator[Case]:
    """Sums whose operands have several layouts and types."""
    item, whole = extent.dtype.itemsize, (size,)
    plain = _call(extent, lambda one, other, out: torch.add(one, other, out=out), whole, whole, whole)

    def sum_of(one: torch.Tensor, other: torch.Tensor) -> Call:
        return partial(torch.add, one, other, out=torch.empty_like(other))

    def strided(dtype: torch.dtype = extent.dtype) -> Call:
        return sum_of(_heads(extent, size), extent.random(16, size // 64 // 16, 64, dtype=dtype))

    def transposed() -> Call:
        rows = 2 ** (size.bit_length() // 2)  # sizes are powers of two, which it divides
        return sum_of(extent.random(size // rows, rows).t(), extent.random(rows, size // rows))

    for name, make in (("add", plain), ("add_strided", strided), ("add_transposed", transposed)):
        yield _case(extent, name, size, 3 * item * size, make, is_cold=is_cold)

    def casting() -> Call:
        return sum_of(extent.random(size), extent.random(size, dtype=torch.float32))

    if item == 2:
        moved = size * (2 + 4 + 4)  # 16 bits are added to float32
        yield _case(extent, "add_cast", size, moved, casting, is_cold=is_cold)
        yield _case(extent, "add_strided_cast", size, moved, partial(strided, torch.float32), is_cold=is_cold)


def _other_element_wise(extent: Extent, size: int, *, is_cold: bool) -> Iterator[Case]:
    """Products, copies, an activation, and the sums of columns."""
    item, whole = extent.dtype.itemsize, (size,)
    mul = _call(extent, lambda one, out: torch.mul(one, 1.5, out=out), whole, whole)
    yield _case(extent, "mul", size, 2 * item * size, mul, is_cold=is_cold)

    other_type = torch.float32 if item == 2 else torch.bfloat16  # training casts between these two

    def cast() -> Call:
        one, out = extent.random(size), extent.random(size, dtype=other_type)
        return lambda: out.copy_(one)

    yield _case(extent, "_to_copy", size, size * (item + other_type.itemsize), cast, is_cold=is_cold)
    yield _case(extent, "gelu", size, 2 * item * size, _call(extent, functional.gelu, whole), is_cold=is_cold)
    yield _case(extent, "clone", size, 2 * item * size, lambda: _heads(extent, size).contiguous, is_cold=is_cold)
    for name, width in (("sum", ROW), ("sum_columns", HEAD)):
        columns = _call(extent, lambda one: one.sum(0), (size // width, width))
        yield _case(extent, name, size, item * size, columns, is_cold=is_cold)


def _heads(extent: Extent, size: int) -> torch.Tensor:
    """Return a tensor (heads, positions, width) of 16 heads of width 64, contiguous by position."""
    return extent.random(size // 64 // 16, 16, 64).transpose(0, 1)


def _casting(extent: Extent) -> Iterator[Case]:
    """The operators of a cast to float8 with a scale: the largest absolute value of all, of rows or of columns of
    bfloat16, the cast of scaled float32 to one byte, and the transposition of that."""
    narrow = torch.float8_e4m3fn

    def cast(size: int) -> Call:
        one, out = extent.random(size, dtype=torch.float32), extent.random(size, dtype=torch.float32).to(narrow)
        return lambda: out.copy_(one)

    def transposed(size: int) -> Call:
        return extent.random(size // ROW, ROW).to(narrow).t().contiguous

    for size in _sizes(extent):
        for is_cold in _is_cold(extent, size):
            largest = _call(extent, torch.max, (size,))
            by_row = _call(extent, partial(torch.amax, dim=-1, keepdim=True), (size // ROW, ROW))
            by_column = _call(extent, partial(torch.amax, dim=0, keepdim=True), (size // ROW, ROW))
            absolute = _call(extent, torch.abs, (size,))
            float8 = {"dtype": "float8_e4m3fn", "is_cold": is_cold}
            yield _case(extent, "abs", size, 4 * size, absolute, is_cold=is_cold)
            yield _case(extent, "max_all", size, 2 * size, largest, is_cold=is_cold)
            yield _case(extent, "amax", size, 2 * size, by_row, is_cold=is_cold)
            yield _case(extent, "amax_columns", size, 2 * size, by_column, is_cold=is_cold)
            yield _case(extent, "_to_copy", size, (4 + 1) * size, partial(cast, size), **float8)
            yield _case(extent, "clone", size, 2 * size, partial(transposed, size), **float8)


def _normalizing(extent: Extent, size: int, *, is_cold: bool) -> Iterator[Case]:
    """LayerNorm and softmax of rows, forward and backward."""
    item, rows = extent.dtype.itemsize, size // ROW

    def norm_backward() -> Call:
        x, weight, gradient = extent.random(rows, ROW), extent.random(ROW), extent.random(rows, ROW)
        _, mean, scale = torch.native_layer_norm(x, [ROW], weight, weight, 1e-5)
        wanted = [True, True, True]
        return lambda: aten.native_layer_norm_backward(gradient, x, [ROW], mean, scale, weight, weight, wanted)

    def softmax_backward() -> Call:
        x, gradient = torch.softmax(extent.random(rows, ROW), -1), extent.random(rows, ROW)
        return lambda: SOFTMAX_BACKWARD(gradient, x, -1, x.dtype)

    norm = _call(extent, lambda x, weight: torch.native_layer_norm(x, [ROW], weight, weight, 1e-5), (rows, ROW), (ROW,))
    softmax = _call(extent, lambda x: torch.softmax(x, -1), (rows, ROW))
    shape: dict[str, Any] = {"shapes": ((rows, ROW),), "is_cold": is_cold}
    moved = item * rows * ROW
    yield _case(extent, "native_layer_norm", size, 2 * moved, norm, **shape)
    yield _case(extent, "native_layer_norm_backward", size, 3 * moved, norm_backward, **shape)
    yield _case(extent, "_softmax", size, 2 * moved, softmax, **shape)
    yield _case(extent, "_softmax_backward_data", size, 3 * moved, softmax_backward, **shape)


def _embedding(extent: Extent, size: int) -> Iterator[Case]:
    """The embedding and, where a token's logits fit in the size, their log-softmax, forward and backward."""
    item, rows = extent.dtype.itemsize, size // ROW
    vocabulary = min(VOCABULARY, rows)

    def tokens() -> torch.Tensor:
        return torch.randint(vocabulary, (rows,), device=extent.device)

    def embedding() -> Call:
        return partial(functional.embedding, tokens(), extent.random(vocabulary, ROW))

    def embedding_backward() -> Call:
        return partial(aten.embedding_dense_backward, extent.random(rows, ROW), tokens(), vocabulary, -1, False)

    shape = ((vocabulary, ROW), (rows,))
    yield _case(extent, "embedding", size, 2 * item * rows * ROW, embedding, shapes=shape)
    moved = item * ROW * (2 * rows + vocabulary)  # it reads gradients, adds them to rows, and first clears all rows
    yield _case(extent, "embedding_dense_backward", size, moved, embedding_backward, shapes=shape)
    if size >= VOCABULARY:
        logits = (size // VOCABULARY, VOCABULARY)
        log_softmax = _call(extent, lambda x: torch.log_softmax(x, -1), logits)
        yield _case(extent, "_log_softmax", size, 2 * item * size, log_softmax, shapes=(logits,))
        backward = _call(extent, lambda x, y: LOG_SOFTMAX_BACKWARD(x, y, -1, x.dtype), logits, logits)
        yield _case(extent, "_log_softmax_backward_data", size, 3 * item * size, backward, shapes=(logits,))


def _routing(extent: Extent, size: int) -> Iterator[Case]:
    """What a mixture of experts does with its tokens: choose by scores, sort by expert, sum over a token's experts. The
    token of a row is random; each has TOP_K rows."""
    rows, item = size // ROW, extent.dtype.itemsize
    tokens, scores = rows // TOP_K, size // EXPERTS

    def places() -> torch.Tensor:
        return torch.randperm(rows, device=extent.device) // TOP_K

    def put() -> Call:
        into, which, values = extent.random(tokens, ROW), places(), extent.random(rows, ROW)
        return lambda: into.index_put_((which,), values, accumulate=True)

    def add() -> Call:
        into, which, values = extent.random(tokens, ROW), places(), extent.random(rows, ROW)
        return lambda: into.index_add(0, which, values)

    def gather() -> Call:
        return partial(torch.gather, extent.random(tokens, ROW), 0, places()[:, None].expand(-1, ROW))

    def scatter() -> Call:
        into, which, values = extent.random(tokens, ROW), places(), extent.random(rows, ROW)
        return lambda: into.scatter_add(0, which[:, None].expand(-1, ROW), values)

    def order() -> Call:
        return partial(torch.sort, torch.randint(EXPERTS, (rows,), device=extent.device))

    # Besides elements, operators read places and write orders, as integers of 8 bytes.
    values, places_read = item * rows * ROW, 8 * rows
    target = values / TOP_K
    shapes = ((tokens, ROW), (rows,), (rows, ROW))
    # index_put_ reads and writes a row of the target for each value; the others only once, into a copy.
    yield _case(extent, "index_put_", size, 3 * values, put, shapes=shapes)
    for name, make in (("index_add", add), ("scatter_add", scatter)):
        yield _case(extent, name, size, values + 2 * target + places_read, make, shapes=shapes)
    yield _case(extent, "gather", size, 2 * values + places_read, gather, shapes=shapes[:2])
    yield _case(extent, "sort", rows, 3 * 8 * rows, order, dtype="int64")  # it writes the numbers and their order
    best = _call(extent, lambda x: x.topk(TOP_K), (scores, EXPERTS))
    moved = scores * (item * (EXPERTS + TOP_K) + 8 * TOP_K)
    yield _case(extent, "topk", size, moved, best, shapes=((scores, EXPERTS),))


def _optimizers(extent: Extent, size: int) -> Iterator[Case]:
    """AdamW of weights, gradients and states of one type, over 8 tensors.

    Fused, it reads weights, gradients and two moments, and writes all but the gradients: 7 accesses of each element.
    With `foreach` each of its operations reads and writes whole tensors: 26 accesses.
    """

    def adamw(**how: Any) -> Call:
        parts = [torch.nn.Parameter(extent.random(size // 8)) for _ in range(8)]
        for one in parts:
            one.grad = torch.randn_like(one)
        return torch.optim.AdamW(parts, **how).step

    for name, accesses, how in (("_fused_adamw_", 7, {"fused": True}), ("_foreach_adamw_", 26, {"foreach": True})):
        moved = extent.dtype.itemsize * accesses * size
        yield _case(extent, name, size, moved, partial(adamw, **how), kind="optimizer")


def _four_bits(extent: Extent, size: int) -> Iterator[Case]:
    """bitsandbytes' conversion of weights from 4 bits, with a float32 scale for each 64 weights, to bfloat16."""
    if extent.dtype != torch.bfloat16 or extent.device == "cpu" or find_spec("bitsandbytes") is None:
        return

    def whole() -> Call:
        library = import_module("bitsandbytes").functional
        stored, state = library.quantize_4bit(extent.random(size // ROW, ROW), quant_type="nf4")
        return partial(library.dequantize_4bit, stored, state)

    moved = size * (extent.dtype.itemsize + 1 / 2 + 4 / 64)
    yield _case(extent, "lmsweep::dequantize_4bit", size, moved, whole)
