"""Allocations and operators of a step at any batch: each size is a multiple of the batch plus a constant."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.analytic.rates.operators import Operator, Operators
from lmsweep.trials.prediction.without_device.allocation_trace import Stretch, Trace


@dataclass(frozen=True, kw_only=True)
class AnyBatchTrace:
    """The trace of a step at any batch, from those of two."""

    first: int
    """The smaller of the two batches; the other has one sequence more."""
    small: Trace
    larger: Trace
    known: Mapping[int, Trace]
    """Traces of the batches that were run."""

    def at(self, batch: int) -> Trace:
        """Return the trace of a step of `batch` sequences."""
        if batch in self.known:
            return self.known[batch]
        return [
            Stretch(
                phase=one.phase,
                first_product=one.first_product,
                events=[
                    (piece, _size(size, more, batch - self.first))
                    for (piece, size), (_, more) in zip(one.events, other.events, strict=True)
                ],
            )
            for one, other in zip(self.small, self.larger, strict=True)
        ]

    def most(self, limit: int) -> int:
        """Return the largest batch whose requested bytes never exceed `limit`; 0 if none."""
        small, larger = _held(self.small), _held(self.larger)
        growth = larger - small
        if ((growth <= 0) & (small > limit)).any():
            return 0
        rising = growth > 0
        return max(0, int(((limit - small[rising]) // growth[rising]).min()) + self.first)


def are_alike(small: Trace, larger: Trace) -> bool:
    """Return whether two batches allocate and free the same pieces in the same order."""

    def form(trace: Trace) -> list[tuple[str, int | None, list[tuple[int, bool]]]]:
        return [(one.phase, one.first_product, [(piece, size > 0) for piece, size in one.events]) for one in trace]

    return form(small) == form(larger)


def operators_grown(small: Operators, larger: Operators, more: int) -> Operators | None:
    """Return the operators of `more` sequences than the small batch has; None if the two run different operators."""
    if [_form(one) for one in small] != [_form(one) for one in larger]:
        return None
    return tuple(
        replace(
            one,
            shapes=tuple(
                tuple(grown(length, its, more) for length, its in zip(shape, their, strict=True))
                for shape, their in zip(one.shapes, other.shapes, strict=True)
            ),
            bytes=grown(one.bytes, other.bytes, more),
            flops=grown(one.flops, other.flops, more),
        )
        for one, other in zip(small, larger, strict=True)
    )


def _form(one: Operator) -> Operator:
    return replace(one, shapes=tuple((0,) * len(shape) for shape in one.shapes), bytes=0, flops=0)


def grown(small: int, larger: int, more: int) -> int:
    """Return a size with `more` sequences than the small batch has; the larger has one more."""
    return small + more * (larger - small)


def _size(small: int, larger: int, more: int) -> int:
    """Return the change of an event with `more` sequences. Few bytes are rounded up to a block, so that they do not
    grow with the batch: of a smaller one they are still allocated, and freed."""
    found = grown(small, larger, more)
    return max(found, 1) if small > 0 else min(found, -1)


def _held(trace: Trace) -> NDArray[np.int64]:
    """Bytes held after each event."""
    return np.cumsum(np.array([change for stretch in trace for _, change in stretch.events], dtype=np.int64))
