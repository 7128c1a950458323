"""Allocations and operators of a step at any batch: each size is a multiple of the batch plus a constant."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.analytic.rates.operators import Operator, Operators
from lmsweep.trials.prediction.without_device.allocation_trace import Stretch, Trace

SMALL, LARGER = 2, 3
"""Batches that are run; one of a single sequence runs other operators in places."""


@dataclass(frozen=True, kw_only=True)
class AnyBatchTrace:
    """The trace of a step at any batch."""

    small: Trace
    """At SMALL sequences."""
    larger: Trace
    """At LARGER."""

    def at(self, batch: int) -> Trace:
        """Return the trace of a step of `batch` sequences."""
        return [
            Stretch(
                phase=one.phase,
                first_product=one.first_product,
                events=[
                    (piece, _grown(size, more, batch))
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
        return max(0, int(((limit - small[rising]) // growth[rising]).min()) + SMALL)


def any_batch_trace(small: Trace, larger: Trace) -> AnyBatchTrace | None:
    """Return the trace at any batch; None if the two do not allocate and free the same pieces in the same order."""

    def form(trace: Trace) -> list[tuple[str, int | None, list[tuple[int, bool]]]]:
        return [(one.phase, one.first_product, [(piece, size > 0) for piece, size in one.events]) for one in trace]

    return AnyBatchTrace(small=small, larger=larger) if form(small) == form(larger) else None


def operators_at(small: Operators, larger: Operators, batch: int) -> Operators | None:
    """Return the operators of a step of `batch` sequences; None if the two batches run different operators."""
    if [_form(one) for one in small] != [_form(one) for one in larger]:
        return None
    return tuple(
        replace(
            one,
            shapes=tuple(
                tuple(_grown(length, its, batch) for length, its in zip(shape, their, strict=True))
                for shape, their in zip(one.shapes, other.shapes, strict=True)
            ),
            bytes=_grown(one.bytes, other.bytes, batch),
            flops=_grown(one.flops, other.flops, batch),
        )
        for one, other in zip(small, larger, strict=True)
    )


def _form(one: Operator) -> Operator:
    return replace(one, shapes=tuple((0,) * len(shape) for shape in one.shapes), bytes=0, flops=0)


def _grown(small: int, larger: int, batch: int) -> int:
    return small + (batch - SMALL) * (larger - small)


def _held(trace: Trace) -> NDArray[np.int64]:
    """Bytes held after each event."""
    return np.cumsum(np.array([change for stretch in trace for _, change in stretch.events], dtype=np.int64))
