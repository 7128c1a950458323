"""Predicts the size of every allocation of a step at any shape of the batch: rows and width.

For each allocation, `fit_formula` tries in this order: a multiple of one term (`TERMS`), a sum of two terms (`PLAIN`),
the workspace of a CUDA reduction (`partial_sums`). The formula must give the sizes at all recorded shapes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, combinations, product, starmap
from math import isqrt
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.prediction.depth.batch_growth import are_alike
from lmsweep.trials.prediction.without_device.allocation_trace import Event, Trace
from lmsweep.trials.prediction.without_device.caching_allocator import round_up
from lmsweep.trials.prediction.without_device.kernel_workspace import partial_sums

Sizes = NDArray[np.int64]


class Shape(NamedTuple):
    """A batch: rows of tokens, and the width to which they are padded."""

    rows: int
    width: int

    @property
    def tokens(self) -> int:
        return self.rows * self.width


FITTED = (Shape(512, 421), Shape(1024, 331), Shape(1536, 173), Shape(4, 421))
"""Shapes that are recorded. The widths are coprime, so that two formulas do not agree by chance. Rounding up to 8, 16,
32, 64 and 128 differs for at least one of them. With so many rows, the allocator rounds no size that depends on them.
With as few rows as in the last shape, a reduction takes fewer blocks than the device has."""

ALONE = (Shape(1, 215552), Shape(1, 169472), Shape(1, 88576), Shape(1, 421), Shape(1, 331))
"""Batches of one row, for which PyTorch makes fewer copies. The first three have 512 times the widths of FITTED."""

_every_partial_sums = np.vectorize(lru_cache(maxsize=2**16)(partial_sums), otypes=[np.int64])

Formula = Callable[[Shape], int]  # `ShapeGrowth.table` gives it a shape of arrays

_ROUNDED = (1, 8, 16, 32, 64, 128)


def _width_term(power: int, is_squared: bool, multiple: int) -> Formula:
    return lambda shape: shape.rows**power * (shape.width if is_squared else 1) * round_up(shape.width, multiple)


TERMS: tuple[Formula, ...] = (
    lambda shape: 1,
    lambda shape: shape.rows,
    *starmap(_width_term, product((0, 1), (False, True), _ROUNDED)),
)
PLAIN: tuple[Formula, ...] = (
    lambda shape: shape.tokens,
    lambda shape: 1,
    lambda shape: shape.rows,
    lambda shape: shape.width,
    lambda shape: shape.rows * round_up(shape.width, 128),
    lambda shape: shape.rows * round_up(shape.width, 32),
    lambda shape: shape.width**2,
    lambda shape: shape.tokens * shape.width,
)
"""An allocation may be a sum of two such terms, those that are usual first: the first sum that fits is taken."""


@lru_cache(maxsize=4096)
def fit_formula(shapes: tuple[Shape, ...], sizes: tuple[int, ...], block: int) -> Formula | None:
    """Return the first formula that gives these sizes at these shapes, rounded up to blocks; None if none does."""
    for term in TERMS:
        if (formula := _multiple(term, shapes, sizes, block)) is not None:
            return formula
    for one, other in combinations(PLAIN, 2):
        if (formula := _sum_of_two(one, other, shapes, sizes, block)) is not None:
            return formula
    return _reduction(shapes, sizes, block)


def _multiple(term: Formula, shapes: Sequence[Shape], sizes: Sequence[int], block: int) -> Formula | None:
    """Return the formula `factor * term`. If several factors fit, as sizes are rounded up to blocks, take the one that
    the largest power of two divides: a factor usually contains the size of an item, a constant fills its blocks."""
    terms = [term(shape) for shape in shapes]
    most = min(size // value for size, value in zip(sizes, terms, strict=True))
    smallest = [size - block + 1 for size in sizes]  # that are rounded up to these sizes
    least = max(round_up(size, value) // value for size, value in zip(smallest, terms, strict=True))
    if not 0 < least <= most:
        return None
    factor = max(range(least, most + 1), key=lambda one: one & -one)  # by the lowest set bit
    return lambda shape: factor * term(shape)


def _sum_of_two(x: Formula, y: Formula, shapes: Sequence[Shape], sizes: Sequence[int], block: int) -> Formula | None:
    (x0, y0), (x1, y1) = ((x(shape), y(shape)) for shape in shapes[:2])  # at these, sizes are not rounded (`FITTED`)
    determinant = x0 * y1 - y0 * x1
    if not determinant:
        return None
    first, rest = divmod(sizes[0] * y1 - sizes[1] * y0, determinant)  # by Cramer's rule
    second, other_rest = divmod(x0 * sizes[1] - x1 * sizes[0], determinant)
    if rest or other_rest or min(first, second) <= 0:
        return None

    def formula(shape: Shape) -> int:
        return first * x(shape) + second * y(shape)

    return formula if _agrees(formula, shapes, sizes, block) else None


def _reduction(shapes: Sequence[Shape], sizes: Sequence[int], block: int) -> Formula | None:
    """Return `partial_sums` with the number of outputs that gives all sizes. It divides the number of float32 in each
    size, so it is looked for among the divisors of the last, which is the smallest."""
    float32_count = sizes[-1] // 4
    divisors = (one for one in range(1, isqrt(float32_count) + 1) if float32_count % one == 0)
    for outputs in chain.from_iterable((one, float32_count // one) for one in divisors):
        formula = _partial_sums_of(outputs)
        if _agrees(formula, shapes, sizes, block):
            return formula
    return None


def _partial_sums_of(outputs: int) -> Formula:
    return lambda shape: cast(int, _every_partial_sums(shape.tokens, outputs))


def _agrees(formula: Formula, shapes: Sequence[Shape], sizes: Sequence[int], block: int) -> bool:
    return all(round_up(formula(at), block) == round_up(size, block) for at, size in zip(shapes, sizes, strict=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapeGrowth:
    """The allocations of steps that differ by their shape alone."""

    block: int
    """Bytes to which the allocator rounds sizes up."""
    shapes: tuple[Shape, ...]
    """Those that were recorded."""
    form: Trace
    """Of the first recorded shape: which pieces are allocated and freed in which order."""
    formulas: tuple[Formula, ...]
    """Each distinct formula once."""
    formula_index: Sizes
    """Of each piece: the index of its formula."""

    def table(self, shapes: Sequence[Shape]) -> Sizes:
        """Return the bytes by each formula, a column for each, at each shape, a row for each."""
        rows, widths = np.array(shapes, dtype=np.int64).T
        every = Shape(cast(int, rows), cast(int, widths))  # the formulas take arrays as well
        return np.stack([np.broadcast_to(formula(every), rows.shape) for formula in self.formulas], axis=1)

    def sizes(self, shape: Shape) -> Sizes:
        """Return the bytes of each piece; 0 where a kernel needs no scratch with this shape."""
        by_formula = np.array([formula(shape) for formula in self.formulas], dtype=np.int64)
        by_piece: Sizes = by_formula[self.formula_index]
        return by_piece

    def trace(self, shape: Shape) -> Trace:
        sizes: list[int] = (-(-self.sizes(shape) // self.block) * self.block).tolist()

        def resized(events: Sequence[Event]) -> list[Event]:
            return [(piece, sizes[piece] if change > 0 else -sizes[piece]) for piece, change in events if sizes[piece]]

        return [replace(one, events=resized(one.events)) for one in self.form]


def shape_growth(traces: Mapping[Shape, Trace], block: int) -> ShapeGrowth | None:
    """Return the formulas of steps recorded at these shapes; None if the steps differ by more, or a size has none."""
    shapes, (first, *others) = tuple(traces), traces.values()
    if not all(are_alike(first, other) for other in others):
        return None
    index_by_sizes: dict[tuple[int, ...], int] = {}  # bytes at each shape -> index of the formula that gives them
    index_by_piece: dict[int, int] = {}
    allocations = [[event for one in trace for event in one.events if event[1] > 0] for trace in traces.values()]
    for at_shapes in zip(*allocations, strict=True):  # of one piece, whose number is the same at all shapes
        piece, _ = at_shapes[0]
        sizes = tuple(size for _, size in at_shapes)
        index_by_piece[piece] = index_by_sizes.setdefault(sizes, len(index_by_sizes))
    formulas = [fit_formula(shapes, sizes, block) for sizes in index_by_sizes]  # by index, as sizes were added
    if None in formulas:
        return None
    # A number that no piece has gets any formula.
    index = np.array([index_by_piece.get(piece, 0) for piece in range(max(index_by_piece) + 1)], dtype=np.int64)
    found = tuple(one for one in formulas if one)
    return ShapeGrowth(block=block, shapes=shapes, form=first, formulas=found, formula_index=index)
