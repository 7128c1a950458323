"""The operators of a step in float8, as torchao's recipes have them, from those of the same step in bfloat16.

torchao keeps weights in float32, finds the scale of each operand from its largest element, and rounds it, before each
of the three products of a linear layer. The products want the first operand by rows and the second by columns, so
backward copies operands into the other layout. Compiled code finds equal scales once, and rounds and transposes in one
kernel, by the rules of `fused_kernels`.

The recipes: `tensorwise` has one scale for each operand, `rowwise` one for each row or column, and so has
`rowwise_with_gw_hp`, except that it computes gradients of weights in 16 bits, and in backward weights have one scale.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from math import prod
from typing import Literal, NamedTuple

from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.prediction.without_device.fused_kernels import Seen, Storage
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.precisions import PRECISIONS

FLOAT8 = "float8_e4m3fn"
SCALING = (("_to_copy", 12), ("clamp", 16), ("reciprocal", 16), ("mul", 16), ("_to_copy", 12))
"""How the largest element becomes a scale (`amax_to_scale`), and bytes moved per scale: 8 of float64, 4 of float32."""
ROUNDING = (("log2", 8), ("floor", 8), ("exp2", 8))
"""What then rounds a scale of a row or column down to a power of two, and the bytes per scale, of float32."""

RESCALING = 4
"""Time in which compiled code multiplies a product by the scales of its rows and columns, over that of its bytes: it
finds both scales again for each element, in float64. Kernels of one H200 took 379 µs for 403 MB, where those without
such scales took 95 µs (docs/lab/2026-11-25-rates-and-hosts.md)."""

Item = tuple[Storage, int]
"""A value and its bytes."""


def in_float8(seen: Sequence[Seen], config: TrialConfig, *, is_compiled: bool) -> list[Seen]:
    """Return what runs with the products of linear layers in float8. is_compiled: as parts of a compiled graph."""
    recipe = PRECISIONS[config.precision].float8_recipe
    assert recipe is not None, "the precision is float8"
    return list(_Layers(recipe, config.micro_batch_size * config.context_length, is_compiled, seen))


class _Operand(NamedTuple):
    """An operand of a product, before it is rounded."""

    item: Item
    elements: int
    axis: int | None
    """The operand has one scale (None), one for each row (0) or one for each column (1)."""
    scales: int
    is_turned: bool
    """Whether the product reads it in the other layout than that in which it lies."""

    @property
    def dtype(self) -> str:
        return "float32" if self.item[1] > 2 * self.elements else "bfloat16"

    @property
    def largest(self) -> str:
        """Name of the operator that finds the largest elements, one for each scale."""
        return {None: "max_all", 0: "amax", 1: "amax_columns"}[self.axis]


@dataclass
class _Layers:
    """Yields the operators of a step, and remembers what compiled code has scaled and rounded already."""

    recipe: str
    tokens: int
    is_compiled: bool
    seen: Sequence[Seen]
    numbers: Iterator[int] = field(default_factory=lambda: count(-1, -1))
    """Negative: storages that no recorded run has."""
    scales: dict[Storage, Item] = field(default_factory=dict)
    """Value -> the scale of all of it, which compiled code keeps for backward."""
    rounded: dict[tuple[object, ...], Item] = field(default_factory=dict)
    """What was rounded, how and where -> the result, which compiled code makes once."""
    turned: dict[tuple[object, ...], Item] = field(default_factory=dict)
    """The same -> its copy in the other layout."""
    same: dict[Storage, Storage] = field(default_factory=dict)
    """Value that a cast made -> the one that an equal cast made first."""

    def __iter__(self) -> Iterator[Seen]:
        made_first: dict[tuple[object, ...], Storage] = {}  # equal casts -> what the first of them made
        for one in self.seen:
            if _is_cast(one):
                if self.weight_casts.get(_made(one)) is one:
                    continue  # in float8, products round the weights in float32
                kind = (one.operator.phase, one.operator.is_again, one.operator.bytes, one.read[0][0])
                self.same[_made(one)] = made_first.setdefault(kind, _made(one))
            if not _is_linear(one) or (self.recipe == "rowwise_with_gw_hp" and self._gives(one) == "weight_gradient"):
                yield one
            else:
                yield from self._product(one)

    @cached_property
    def weight_casts(self) -> dict[Storage, Seen]:
        """Weight of 16 bits -> the operator by which autocast makes it."""
        cast_by = {_made(one): one for one in self.seen if _is_cast(one) and one.operator.dtype == "float32"}
        products = [one for one in self.seen if _is_linear(one) and self._gives(one) != "weight_gradient"]
        weights = [one.read[1][0] for one in products if len(one.read) > 1]
        return {weight: cast_by[weight] for weight in weights if weight in cast_by}

    def _gives(self, product: Seen) -> Literal["output", "input_gradient", "weight_gradient"]:
        """(tokens, in) x (in, out), (tokens, out) x (out, in) and (out, tokens) x (tokens, in), in this order."""
        operator = product.operator
        if operator.phase == "forward" or operator.is_again:
            return "output"
        rows, inner = operator.shapes[0]  # with as many outputs as tokens, both gradients have these
        sums_tokens = inner == self.tokens and (rows != inner or operator.layout.startswith("t"))
        return "weight_gradient" if sums_tokens else "input_gradient"

    def _product(self, one: Seen) -> Iterator[Seen]:
        operator, block, by_rows = one.operator, one.block, self.recipe != "tensorwise"
        rounding = self._compiled if self.is_compiled else self._eager
        first = yield from rounding(operator, block, self._operand(one, 0))
        second = yield from rounding(operator, block, self._operand(one, 1))
        if not self.is_compiled:
            for _ in (first, second):
                yield Seen(_element_wise(operator, "reciprocal", "float64", 1, 8), block, (), ())
        # How products are summed: backward in float32, forward faster. Only forward's kernel takes scales of rows.
        is_output = self._gives(one) == "output"
        kind = ("rows" if by_rows else "fast") if is_output else "exact"
        moved = operator.bytes - sum(map(prod, operator.shapes[:2]))  # an element has one byte instead of two
        product = replace(operator, name="_scaled_mm", dtype=FLOAT8, bytes=moved, layout=kind)
        yield Seen(product, block, (first, second), one.wrote)
        if by_rows and not is_output:
            yield from self._rescaled(operator, block, one.wrote)

    def _operand(self, product: Seen, place: int) -> _Operand:
        """Return the first (0) or the second operand (1) of a product."""
        gives, shape = self._gives(product), product.operator.shapes[place]
        value = product.read[0 if place == 0 else -1][0]
        is_turned = gives == "weight_gradient" or (gives == "input_gradient" and place == 1)
        has_one_scale = self.recipe == "tensorwise" or (self.recipe == "rowwise_with_gw_hp" and is_turned)
        is_weight = place == 1 and gives != "weight_gradient"
        cast = self.weight_casts.get(value) if is_weight else None
        return _Operand(
            item=cast.read[0] if cast else (value, 2 * prod(shape)),
            elements=prod(shape),
            # The product reads the first operand's rows and the second's columns, each with its scale. In memory these
            # are rows (0), or columns (1) if it is turned.
            axis=None if has_one_scale else int(is_turned),
            scales=1 if has_one_scale else shape[place],
            is_turned=is_turned,
        )

    def _eager(self, like: Operator, block: str, operand: _Operand) -> Generator[Seen, None, Item]:
        """Yield what finds the scales of an operand and rounds it; return the result."""
        elements, scales, dtype = operand.elements, operand.scales, operand.dtype
        steps = [_element_wise(like, "abs", dtype, elements, 2 * operand.item[1])]
        steps += [_element_wise(like, operand.largest, dtype, elements, operand.item[1])]
        for name, moved in (*SCALING, *(ROUNDING if self.recipe != "tensorwise" else ())):
            steps.append(_element_wise(like, name, "float64", scales, moved * scales))
        moves = [] if dtype == "float32" else [("_to_copy", "bfloat16", 6)]
        moves += [("mul", "float32", 8), ("clamp", "float32", 8), ("_to_copy", FLOAT8, 5)]
        moves += [("clone", FLOAT8, 2)] if operand.is_turned else []  # bytes: 2 of bfloat16, 4 of float32, 1 of float8
        for name, to, moved in moves:
            step = _element_wise(like, name, to, elements, moved * elements)
            if name == "mul" and operand.axis is not None:
                step = replace(step, shapes=((scales, elements // scales), (scales, 1)))
            steps.append(step)
        yield from (Seen(one, block, (), ()) for one in steps)
        return self._new(elements)

    def _compiled(self, like: Operator, block: str, operand: _Operand) -> Generator[Seen, None, Item]:
        """Yield what finds the scales of an operand and rounds it, unless an earlier call has; return the result."""
        item, elements = operand.item, operand.elements
        key = (self._first_made(item), operand.axis, like.phase, like.is_again, block)
        if key not in self.rounded:
            scale = yield from self._scale(like, block, operand)
            self.rounded[key] = self._new(elements)
            rounding = _element_wise(like, "_to_copy", operand.dtype, elements, item[1] + elements)
            yield Seen(rounding, block, (item, scale), (self.rounded[key],))
        if not operand.is_turned:
            return self.rounded[key]
        if key not in self.turned:
            self.turned[key] = self._new(elements)
            copy = _element_wise(like, "clone", FLOAT8, elements, 2 * elements)
            yield Seen(copy, block, (self.rounded[key],), (self.turned[key],))
        return self.turned[key]

    def _scale(self, like: Operator, block: str, operand: _Operand) -> Generator[Seen, None, Item]:
        """Yield what finds the scales of an operand, unless the only one is known; return them."""
        item, axis, value = operand.item, operand.axis, self._first_made(operand.item)
        if axis is None and value in self.scales:
            return self.scales[value]
        part = self._new(4 * operand.scales)
        largest = _element_wise(like, operand.largest, operand.dtype, operand.elements, item[1])
        yield Seen(largest, block, (item,), (part,))
        if axis == 0:
            return part
        scale = self._new(4 * operand.scales)  # a kernel of its own ends the sum of parts
        ends = _element_wise(like, "scale", operand.dtype, operand.elements, 8 * operand.scales)
        yield Seen(ends, block, (part,), (scale,))
        if axis is None:
            self.scales[value] = scale
        return scale

    def _first_made(self, item: Item) -> Storage:
        return self.same.get(item[0], item[0])

    def _rescaled(self, like: Operator, block: str, result: tuple[Item, ...]) -> Iterator[Seen]:
        """Yield what multiplies a product by the scales of its rows and columns."""
        size = sum(moved for _, moved in result)
        if self.is_compiled:
            more = self._new((RESCALING - 1) * 2 * size)  # an invented read: its bytes stand for time
            yield Seen(_element_wise(like, "mul_", "bfloat16", size // 2, 2 * size), block, (*result, more), result)
            return
        outer = _element_wise(like, "mul", "float32", size // 2, 2 * size)
        yield Seen(replace(outer, shapes=((size // 2, 1), (1, size // 2))), block, (), ())
        yield Seen(_element_wise(like, "mul_", "bfloat16", size // 2, 4 * size), block, (), ())

    def _new(self, size: int) -> Item:
        return (next(self.numbers), 0), size


def _element_wise(like: Operator, name: str, dtype: str, elements: int, moved: int) -> Operator:
    """Return an operator on so many elements, in the phase and the module of another. moved: bytes."""
    return replace(like, name=name, flops=0, layout="", shapes=((elements,),), dtype=dtype, bytes=moved)


def _is_cast(one: Seen) -> bool:
    return one.operator.name == "_to_copy" and bool(one.read) and bool(one.wrote)


def _made(cast: Seen) -> Storage:
    return cast.wrote[0][0]


def _is_linear(one: Seen) -> bool:
    """Whether it is a product of a linear layer in a block."""
    return one.operator.name == "mm" and ".*" in one.operator.module and bool(one.operator.shapes)
