"""One operator of a step: what it computes and moves, and in which part of the model. The unit of predicted time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Literal

Phase = Literal["forward", "backward", "optimizer"]

Stream = Literal["compute", "communication"]

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """An operator that launches a kernel. Views launch none and are not recorded.

    The operators of a step are in the order in which the host launches them. Only one layer is
    stored: neighbours with the same `count` above 1 form that layer. The whole group repeats `count` times.
    """

    name: str
    """Without namespace and overload: `mm`, `addmm`, `bmm`, `_scaled_mm`, `_grouped_mm`, `native_layer_norm`,
    `_fused_adamw_`, `_foreach_add_`, `_scaled_dot_product_flash_attention_backward`, ... Of compiled code `fused` for a
    kernel that Inductor generates; of attention also `flex_attention`, `sdpa_cudnn` with `_backward`, which no fake
    device runs. Of `offload` one of HOST_OPERATORS. Collectives are `all_reduce`, `all_gather`, `reduce_scatter`,
    `broadcast`, `send_recv`."""
    shapes: tuple[Shape, ...]
    """Of the input tensors, in the order of the operator's schema: mm (m, k), (k, n); addmm (n,), (m, k), (k, n); bmm
    (b, m, k), (b, k, n); attention (batch, heads, context, d_head) of query, key, value, and in backward first the
    gradient of the output. Lists of tensors (optimizers) stand as one flat shape each: their elements."""
    dtype: str
    """Type of the first floating-point input, as torch names it without `torch.`. A float32 product that uses tensor
    cores has `tf32`; a collective has the type of its message."""
    bytes: int
    """Bytes read and written in device memory, each tensor once; an embedding reads only the rows it looks up. A
    collective has the size of its message as nccl-tests counts it: the gathered tensor of an all-gather, the scattered
    one of a reduce-scatter."""
    flops: int
    """Two per multiply-add of products, convolutions and attention. Attention counts the scores that a kernel computes:
    half with a causal mask, their share with a window or packed documents. Its fused backward counts 2.5 times."""
    phase: Phase
    module: str
    """Path of the innermost module, with layers as `layers.*`: `layers.*.attn.q_proj`, `lm_head`, `loss`; `optimizer`
    in that phase; empty if none is known."""
    layout: str = ""
    """Of a product's two operands: `n` for one that is row-major, `t` for a transposed view; x Wᵀ is `nt`. Of an
    element-wise operator `strided` where not all operands lie as the result does (heads of attention, what is
    broadcast), `transposed` where neighbours in a row of the result are far apart in an operand, `cast` and
    `strided_cast` where it reads several dtypes. Of a sum `columns` if few columns of many rows are summed."""
    is_again: bool = False
    """Whether backward computes again what forward did not keep (activation checkpointing)."""
    is_causal: bool = False
    """For attention: whether a query sees only positions before it."""
    is_compiled: bool = False
    """Whether compiled code launches it."""
    calls: int = 0
    """How often compiled code that begins with this operator is called; 0 for all its other operators."""
    stream: Stream = "compute"
    ranks: int = 1
    """For a collective: the size of its group; `bytes` is its message. For an update on the host: who share it."""
    stride: int = 1
    """For a collective: the distance between neighbouring ranks of its group, 1 within a node."""
    count: int = 1
    """Repetitions, each with kernels of its own: micro-batches, layers."""


Operators = tuple[Operator, ...]

FIELDS = tuple(one.name for one in fields(Operator))

row_of = attrgetter(*FIELDS)
"""Returns the values of an operator's fields, for JSON: a step has hundreds of operators, so no row says the names."""


def from_values(found: Sequence[Sequence[object]]) -> Operators:
    rows: Iterator[dict[str, Any]] = (dict(zip(FIELDS, values, strict=True)) for values in found)
    return tuple(Operator(**row | {"shapes": tuple(map(tuple, row["shapes"]))}) for row in rows)


def class_of(operator: Operator) -> str:
    """Return what decides its time: products, attention, bytes, optimizer, compiled, collectives or host."""
    if operator.stream == "communication":
        return "collectives"
    if operator.name in HOST_OPERATORS:
        return "host"
    if "attention" in operator.name or operator.name.startswith("sdpa_cudnn"):
        return "attention"
    if operator.name in PRODUCTS:
        return "products"
    if operator.phase == "optimizer":
        return "optimizer"
    return "compiled" if operator.is_compiled else "bytes"


PRODUCTS = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm", "convolution", "addmv", "mv"}
    | {"convolution_backward", "_int_mm"}
)
"""Operators that are matrix products."""

ELEMENT_WISE = frozenset(
    {"add", "add_", "sub", "rsub", "mul", "mul_", "div", "div_", "neg", "pow", "where", "masked_fill", "eq", "lt"}
    | {"_to_copy", "copy_", "silu", "silu_backward", "gelu", "gelu_backward"}
)
"""Operators whose kernel computes an address for each element where the operands do not all lie alike."""

HOST_OPERATORS = frozenset({"lmsweep::copy_to_host", "lmsweep::copy_to_device", "lmsweep::update_on_host"})
"""What `offload` does, while the device waits: copies of `bytes`, and AdamW's update of weights of `bytes`."""
