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
from itertools import count
from math import prod
from typing import NamedTuple

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
    """Return what runs with the products of the layers' linear parts in float8. is_compiled: whether they are part of
    a graph, whose kernels `fused_kernels` finds."""
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
        return ("max_all", "amax", "amax_columns")[0 if self.axis is None else self.axis + 1]


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
    same: dict[Storage, Storage] = field(default_factory=dict)
    """Value that a cast made -> the one that an equal cast made first."""

    def __iter__(self) -> Iterator[Seen]:
        cast_by = {one.wrote[0][0]: one for one in self.seen if _is_cast(one) and one.operator.dtype == "float32"}
        linear = [one for one in self.seen if _is_linear(one) and len(one.read) > 1 and not self._of_weight(one)]
        # Autocast makes weights of 16 bits. In float8, products round the weights in float32, so these casts go.
        casts_of_weights = [cast_by[one.read[1][0]] for one in linear if one.read[1][0] in cast_by]
        left_out = {id(one) for one in casts_of_weights}
        in_float32 = {one.wrote[0][0]: one.read[0] for one in casts_of_weights}
        made_first: dict[tuple[object, ...], Storage] = {}  # equal casts -> what the first of them made
        for one in self.seen:
            if id(one) in left_out:
                continue
            if _is_cast(one):
                key = (one.operator.phase, one.operator.is_again, one.operator.bytes, one.read[0][0])
                self.same[one.wrote[0][0]] = made_first.setdefault(key, one.wrote[0][0])
            if not _is_linear(one) or (self.recipe == "rowwise_with_gw_hp" and self._of_weight(one)):
                yield one
            else:
                yield from self._product(one, in_float32)

    def _of_weight(self, one: Seen) -> bool:
        """Whether a product is the gradient of a weight: its inner dimension is the number of tokens."""
        operator = one.operator
        return operator.phase == "backward" and not operator.is_again and operator.shapes[0][1] == self.tokens

    def _product(self, one: Seen, in_float32: dict[Storage, Item]) -> Iterator[Seen]:
        """Yield a product with its operands rounded. in_float32: weight in 16 bits -> the one it was cast from."""
        operator, block, result = one.operator, one.block, one.wrote
        forward = operator.phase == "forward" or operator.is_again
        by_rows = self.recipe != "tensorwise"
        rounding = self._compiled if self.is_compiled else self._eager
        narrow = []
        for place, (item, shape) in enumerate(zip((one.read[0], one.read[-1]), operator.shapes[:2], strict=True)):
            is_turned = not forward and (place == 1 or self._of_weight(one))
            # The product reads the first operand's rows and the second's columns, each with its scale. In memory these
            # are rows (0), or columns (1) if it is turned. Weights come second, and not in the gradients of weights.
            has_one_scale = not by_rows or (self.recipe == "rowwise_with_gw_hp" and is_turned)
            narrow_item = item[0], 2 * prod(shape)
            operand = _Operand(
                item=narrow_item if place == 0 or self._of_weight(one) else in_float32.get(item[0], narrow_item),
                elements=prod(shape),
                axis=None if has_one_scale else int(is_turned),
                scales=1 if has_one_scale else shape[place],
                is_turned=is_turned,
            )
            narrow.append((yield from rounding(operator, block, operand)))
        if not self.is_compiled:
            for _ in narrow:
                yield Seen(_element_wise(operator, "reciprocal", "float64", 1, 8), block, (), ())
        # How products are summed: backward in float32, forward faster. Only forward's kernel takes scales of rows.
        kind = ("rows" if by_rows else "fast") if forward else "exact"
        moved = operator.bytes - sum(map(prod, operator.shapes[:2]))  # an element has one byte instead of two
        product = replace(operator, name="_scaled_mm", dtype=FLOAT8, bytes=moved, layout=kind)
        yield Seen(product, block, tuple(narrow), result)
        if by_rows and not forward:
            yield from self._rescaled(operator, block, result)

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
        item, elements, axis, dtype = operand.item, operand.elements, operand.axis, operand.dtype
        value = self.same.get(item[0], item[0])
        key = (value, axis, like.phase, like.is_again, block)
        if key not in self.rounded:
            scale = self.scales.get(value) if axis is None else None
            if scale is None:
                part, scale = self._new(4 * operand.scales), self._new(4 * operand.scales)
                yield Seen(_element_wise(like, operand.largest, dtype, elements, item[1]), block, (item,), (part,))
                if axis == 0:
                    scale = part
                else:  # a kernel of its own ends the sum of parts
                    ends = _element_wise(like, "scale", dtype, elements, 8 * operand.scales)
                    yield Seen(ends, block, (part,), (scale,))
                if axis is None:
                    self.scales[value] = scale
            self.rounded[key] = self._new(elements)
            rounding = _element_wise(like, "_to_copy", dtype, elements, item[1] + elements)
            yield Seen(rounding, block, (item, scale), (self.rounded[key],))
        if not operand.is_turned:
            return self.rounded[key]
        if (key, "turned") not in self.rounded:
            self.rounded[key, "turned"] = self._new(elements)
            copy = _element_wise(like, "clone", FLOAT8, elements, 2 * elements)
            yield Seen(copy, block, (self.rounded[key],), (self.rounded[key, "turned"],))
        return self.rounded[key, "turned"]

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


def _is_linear(one: Seen) -> bool:
    """Whether it is a product of a linear layer in a block."""
    return one.operator.name == "mm" and ".*" in one.operator.module and bool(one.operator.shapes)
