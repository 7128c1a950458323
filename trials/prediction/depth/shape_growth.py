"""The allocations of a step at any shape: each size follows one law of the number of rows and of their width.

Three recorded shapes give the law of each allocation: a multiple of rows, of width, of their products, or of the width
rounded up as a kernel does it; a sum of two of these; or the scratch of a long sum, whose rule is known. The shapes are
such that no two laws agree by chance, and a further one checks them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.prediction.depth.batch_growth import are_alike
from lmsweep.trials.prediction.without_device.allocation_trace import Trace
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
"""Shapes that are recorded. Their widths have no common divisors, and each multiple of 8 to 128 to which a kernel
rounds differs in at least one of them. With so many rows, the allocator rounds no size that depends on them; with as
few as in the last one, long sums take fewer blocks than the device has."""

ALONE = (Shape(1, 215552), Shape(1, 169472), Shape(1, 88576), Shape(1, 421), Shape(1, 331))
"""The same of a batch of one row, for which PyTorch makes fewer copies. The long ones are multiples of 512."""

Law = Callable[[Shape], int]
Term = Callable[[Shape], int]

_ROUNDED = (1, 8, 16, 32, 64, 128)


def _terms() -> Iterator[Term]:
    yield lambda shape: 1
    yield lambda shape: shape.rows
    for power in (0, 1):
        for multiple in _ROUNDED:
            yield lambda shape, p=power, m=multiple: shape.rows**p * round_up(shape.width, m)  # type: ignore[misc]
        for multiple in _ROUNDED:
            yield lambda shape, p=power, m=multiple: (  # type: ignore[misc]
                shape.rows**p * shape.width * round_up(shape.width, m)
            )


TERMS: tuple[Term, ...] = tuple(_terms())
PLAIN: tuple[Term, ...] = (
    lambda shape: shape.tokens,
    lambda shape: 1,
    lambda shape: shape.rows,
    lambda shape: shape.width,
    lambda shape: shape.rows * round_up(shape.width, 128),
    lambda shape: shape.rows * round_up(shape.width, 32),
    lambda shape: shape.width**2,
    lambda shape: shape.tokens * shape.width,
)
"""An allocation may be a sum of two such terms."""


@lru_cache(maxsize=4096)
def law_of(shapes: tuple[Shape, ...], sizes: tuple[int, ...], block: int) -> Law | None:
    """Return the law that gives these sizes at these shapes, rounded up to blocks; None if none does."""
    for term in TERMS:
        if (law := _multiple(term, shapes, sizes, block)) is not None:
            return law
    for one, other in combinations(PLAIN, 2):
        if (law := _sum_of_two(one, other, shapes, sizes, block)) is not None:
            return law
    return _sums(shapes, sizes, block)


def _multiple(term: Term, shapes: Sequence[Shape], sizes: Sequence[int], block: int) -> Law | None:
    """Return the law `factor * term`. Of several factors that round to these sizes, it is that of the largest items."""
    most = min(size // term(shape) for shape, size in zip(shapes, sizes, strict=True))
    least = max(-(-(size - block + 1) // term(shape)) for shape, size in zip(shapes, sizes, strict=True))
    if not 0 < least <= most:
        return None
    factor = max(range(least, most + 1), key=lambda one: one & -one) if most - least < block else most
    return lambda shape: factor * term(shape)


def _sum_of_two(one: Term, other: Term, shapes: Sequence[Shape], sizes: Sequence[int], block: int) -> Law | None:
    (a, b), (c, d) = ((one(shape), other(shape)) for shape in shapes[:2])
    determinant = a * d - b * c
    if not determinant:
        return None
    first, rest = divmod(sizes[0] * d - sizes[1] * b, determinant)
    second, other_rest = divmod(a * sizes[1] - c * sizes[0], determinant)
    if rest or other_rest or min(first, second) <= 0:
        return None

    def law(shape: Shape) -> int:
        return first * one(shape) + second * other(shape)

    return law if _agrees(law, shapes, sizes, block) else None


def _sums(shapes: Sequence[Shape], sizes: Sequence[int], block: int) -> Law | None:
    """The scratch of a sum over all tokens, whose width is the one that gives all sizes."""
    quarter = sizes[-1] // 4
    for divisor in range(1, isqrt(quarter) + 1):
        for outputs in () if quarter % divisor else (divisor, quarter // divisor):

            def law(shape: Shape, outputs: int = outputs) -> int:
                return partial_sums(shape.tokens, outputs)

            if _agrees(law, shapes, sizes, block):
                return law
    return None


def _agrees(law: Law, shapes: Sequence[Shape], sizes: Sequence[int], block: int) -> bool:
    return all(round_up(law(shape), block) == round_up(size, block) for shape, size in zip(shapes, sizes, strict=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapeGrowth:
    """The allocations of steps that differ by their shape alone."""

    block: int
    """Bytes to which the allocator rounds sizes up."""
    shapes: tuple[Shape, ...]
    """Those that were recorded."""
    form: Trace
    """Of the first recorded shape: which pieces are allocated and freed in which order."""
    laws: tuple[Law, ...]
    """The laws that differ."""
    law: Sizes
    """Of each piece: which law it follows."""

    @lru_cache(maxsize=4096)  # noqa: B019 - as long as the growth
    def values(self, shape: Shape) -> Sizes:
        """Return the sizes that differ. A step needs at most what another does if none of them is larger."""
        return np.array([law(shape) for law in self.laws], dtype=np.int64)

    def sizes(self, shape: Shape) -> Sizes:
        """Return the bytes of each piece; 0 where a kernel needs no scratch with this shape."""
        found: Sizes = self.values(shape)[self.law]
        return found

    def trace(self, shape: Shape) -> Trace:
        """Return what a step of this shape allocates and frees."""
        sizes: list[int] = (-(-self.sizes(shape) // self.block) * self.block).tolist()
        return [
            replace(
                one,
                events=[
                    (piece, sizes[piece] if change > 0 else -sizes[piece])
                    for piece, change in one.events
                    if sizes[piece]
                ],
            )
            for one in self.form
        ]


def shape_growth(traces: Mapping[Shape, Trace], block: int) -> ShapeGrowth | None:
    """Return the law of steps recorded at these shapes; None if they differ by more than sizes that follow a law."""
    shapes, (first, *others) = tuple(traces), traces.values()
    if not all(are_alike(first, other) for other in others):
        return None
    numbers: dict[tuple[int, ...], int] = {}
    places: dict[int, int] = {}
    events = [[event for one in trace for event in one.events if event[1] > 0] for trace in traces.values()]
    for alike in zip(*events, strict=True):
        places[alike[0][0]] = numbers.setdefault(tuple(size for _, size in alike), len(numbers))
    laws = [law_of(shapes, sizes, block) for sizes in numbers]
    if None in laws:
        return None
    law = np.array([places.get(piece, 0) for piece in range(max(places) + 1)], dtype=np.int64)
    return ShapeGrowth(block=block, shapes=shapes, form=first, laws=tuple(one for one in laws if one), law=law)
