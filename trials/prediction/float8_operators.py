"""The operators of a step in float8, as torchao's recipes have them, from those of the same step in bfloat16.

torchao keeps weights in float32, finds the scale of each operand from its largest element, and rounds it, before each
of the three products of a linear layer. The products want the first operand by rows and the second by columns, so
backward copies operands into the other layout. Compiled code finds equal scales once, and rounds and transposes in one
kernel, by the rules of `fused_kernels`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod

from lmsweep.trials.analytic.rates.operators import Operator
from lmsweep.trials.prediction.without_device.fused_kernels import Seen, Storage
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.precisions import PRECISIONS

FLOAT8 = "float8_e4m3fn"
SCALING = (("_to_copy", 12), ("clamp", 16), ("reciprocal", 16), ("mul", 16), ("_to_copy", 12))
"""What turns the largest element into a scale, in float64 (`amax_to_scale`), and bytes moved per scale."""
ROUNDING = (("log2", 8), ("floor", 8), ("exp2", 8))
"""What then rounds a scale of a row or column down to a power of two, and the bytes per scale."""

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


@dataclass
class _Layers:
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
        made_from = {
            one.wrote[0][0]: (one, one.read[0])
            for one in self.seen
            if one.operator.name == "_to_copy" and one.operator.dtype == "float32" and one.read and one.wrote
        }
        weights = {
            one.read[1][0]: made_from[one.read[1][0]]
            for one in self.seen
            if _is_linear(one) and len(one.read) > 1 and one.read[1][0] in made_from and not self._of_weight(one)
        }
        """Weight in 16 bits -> the cast of autocast that made it, and the weight in float32."""
        casts = {id(cast) for cast, _ in weights.values()}
        first: dict[tuple[object, ...], Storage] = {}
        for one in self.seen:
            if id(one) in casts:
                continue
            if one.operator.name == "_to_copy" and one.read and one.wrote:
                key = (one.operator.phase, one.operator.is_again, one.operator.bytes, one.read[0][0])
                self.same[one.wrote[0][0]] = first.setdefault(key, one.wrote[0][0])
            if not _is_linear(one) or (self.recipe == "rowwise_with_gw_hp" and self._of_weight(one)):
                yield one
                continue
            yield from self._product(one, {copy: wide for copy, (_, wide) in weights.items()})

    def _of_weight(self, one: Seen) -> bool:
        """Whether a product is the gradient of a weight."""
        operator = one.operator
        return operator.phase == "backward" and not operator.is_again and operator.shapes[0][1] == self.tokens

    def _product(self, one: Seen, weights: dict[Storage, Item]) -> Iterator[Seen]:
        operator = one.operator
        rows, columns = operator.shapes[:2]
        sizes = prod(rows), prod(columns)
        operands = one.read[0], one.read[-1]
        forward = operator.phase == "forward" or operator.is_again
        of_weight = self._of_weight(one)
        by_rows = self.recipe != "tensorwise"
        narrow = []
        for place, (item, elements) in enumerate(zip(operands, sizes, strict=True)):
            wide = weights.get(item[0]) if place == 1 and not of_weight else None
            # The scale runs along the dimension that the product keeps: in a row-major operand rows (0) or columns (1).
            axis: int | None = None
            if by_rows and not (self.recipe == "rowwise_with_gw_hp" and place == 1 and not forward):
                axis = int(of_weight or (place == 1 and not forward))
            transposed = not forward and (of_weight or place == 1)
            lines = rows[0] if place == 0 else columns[1]
            cast = self._cast(operator, one.block, wide or (item[0], 2 * elements), elements, axis, lines, transposed)
            yield from cast.steps
            narrow.append(cast.result)
        kind = ("rows" if by_rows else "fast") if forward else "exact"
        result = one.wrote
        moved = operator.bytes - sum(sizes)  # an element of an operand has one byte instead of two
        if not self.is_compiled:
            yield from (self._tiny(operator, one.block, "reciprocal", 8) for _ in range(2))
        product = replace(operator, name="_scaled_mm", dtype=FLOAT8, bytes=moved, layout=kind)
        yield Seen(product, one.block, tuple(narrow), result)
        if by_rows and not forward:  # this kernel knows no scales of rows
            yield from self._rescaled(operator, one.block, result)

    def _cast(
        self, like: Operator, block: str, item: Item, elements: int, axis: int | None, lines: int, transposed: bool
    ) -> "_Cast":
        """A scale and a rounded copy of an operand. axis: one scale for all (None), for each row (0) or column (1)."""
        kind = "float32" if item[1] > 2 * elements else "bfloat16"
        plain = replace(like, flops=0, layout="", shapes=((elements,),), dtype=kind)
        largest = ("max_all", "amax", "amax_columns")[0 if axis is None else axis + 1]
        scales = 1 if axis is None else lines
        if self.is_compiled:
            return self._compiled(plain, block, item, elements, axis, largest, scales, transposed)
        steps = [replace(plain, name="abs", bytes=2 * item[1]), replace(plain, name=largest, bytes=item[1])]
        for name, bytes in (*SCALING, *(ROUNDING if self.recipe != "tensorwise" else ())):
            steps.append(replace(plain, name=name, shapes=((scales,),), dtype="float64", bytes=bytes * scales))
        moves = [] if kind == "float32" else [("_to_copy", "bfloat16", 6)]
        moves += [("mul", "float32", 8), ("clamp", "float32", 8), ("_to_copy", FLOAT8, 5)]
        moves += [("clone", FLOAT8, 2)] if transposed else []
        for name, dtype, bytes in moves:
            shapes = ((scales, elements // scales), (scales, 1)) if name == "mul" and axis is not None else plain.shapes
            steps.append(replace(plain, name=name, dtype=dtype, shapes=shapes, bytes=bytes * elements))
        return _Cast([Seen(one, block, (), ()) for one in steps], (self._new(), elements))

    def _compiled(
        self,
        plain: Operator,
        block: str,
        item: Item,
        elements: int,
        axis: int | None,
        largest: str,
        scales: int,
        transposed: bool,
    ) -> "_Cast":
        value = self.same.get(item[0], item[0])
        key = (value, axis, plain.phase, plain.is_again, block)
        steps: list[Seen] = []
        if key not in self.rounded:
            scale = self.scales.get(value) if axis is None else None
            if scale is None:
                part, scale = (self._new(), 4 * scales), (self._new(), 4 * scales)
                steps.append(Seen(replace(plain, name=largest, bytes=item[1]), block, (item,), (part,)))
                if axis == 0:
                    scale = part
                else:  # a kernel of its own ends the sum of parts
                    steps.append(Seen(replace(plain, name="scale", bytes=8 * scales), block, (part,), (scale,)))
                if axis is None:
                    self.scales[value] = scale
            self.rounded[key] = (self._new(), elements)
            rounding = replace(plain, name="_to_copy", bytes=item[1] + elements)
            steps.append(Seen(rounding, block, (item, scale), (self.rounded[key],)))
        if not transposed:
            return _Cast(steps, self.rounded[key])
        if (key, "transposed") not in self.rounded:
            self.rounded[key, "transposed"] = (self._new(), elements)
            copy = replace(plain, name="clone", dtype=FLOAT8, bytes=2 * elements)
            steps.append(Seen(copy, block, (self.rounded[key],), (self.rounded[key, "transposed"],)))
        return _Cast(steps, self.rounded[key, "transposed"])

    def _rescaled(self, like: Operator, block: str, result: tuple[Item, ...]) -> Iterator[Seen]:
        """Multiply a product by the scales of its rows and columns."""
        size = sum(bytes for _, bytes in result)
        plain = replace(like, flops=0, layout="", shapes=((size // 2,),), dtype="bfloat16")
        if self.is_compiled:
            more = (
                self._new(),
                (RESCALING - 1) * 2 * size,
            )  # a read that takes RESCALING times the bytes of the product
            yield Seen(replace(plain, name="mul_", bytes=2 * size), block, (*result, more), result)
            return
        outer = replace(plain, name="mul", dtype="float32", shapes=((size // 2, 1), (1, size // 2)), bytes=2 * size)
        yield Seen(outer, block, (), ())
        yield Seen(replace(plain, name="mul_", bytes=4 * size), block, (), ())

    def _tiny(self, like: Operator, block: str, name: str, bytes: int) -> Seen:
        operator = replace(like, name=name, flops=0, layout="", shapes=((1,),), dtype="float64", bytes=bytes)
        return Seen(operator, block, (), ())

    def _new(self) -> Storage:
        return next(self.numbers), 0


@dataclass(frozen=True)
class _Cast:
    steps: list[Seen]
    result: Item


def _is_linear(one: Seen) -> bool:
    """Whether it is a product of a linear layer in a block."""
    return one.operator.name == "mm" and ".*" in one.operator.module and bool(one.operator.shapes)
