"""The allocations of a step at any batch: each size is a multiple of the batch plus a constant."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lmsweep.trials.prediction.depth.operator_growth import grown
from lmsweep.trials.prediction.without_device.allocation_trace import Event, Trace


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The bytes that a step requests after each event, at any batch."""

    first: int
    small: NDArray[np.int64]
    """Bytes after each event of a step of `first` sequences."""
    growth: NDArray[np.int64]
    """Bytes that each further sequence adds."""

    @classmethod
    def of(cls, small: Trace, larger: Trace, first: int) -> "Growth":
        """Return the growth from the traces of steps with `first` sequences and with one more."""
        few, more = (
            np.cumsum(np.array([change for stretch in trace for _, change in stretch.events], dtype=np.int64))
            for trace in (small, larger)
        )
        return cls(first=first, small=few, growth=more - few)

    def at(self, batch: int) -> int:
        """Return the peak of the bytes that a step of `batch` sequences requests."""
        return int((self.small + (batch - self.first) * self.growth).max())


def grown_trace(small: Trace, larger: Trace, more: int) -> Trace:
    """Return the trace of a step with `more` sequences than the small one has; the larger one has one more."""
    return [
        replace(one, events=[_grown_event(*pair, more) for pair in zip(one.events, other.events, strict=True)])
        for one, other in zip(small, larger, strict=True)
    ]


def are_alike(small: Trace, larger: Trace) -> bool:
    """Return whether two batches allocate and free the same pieces in the same order."""

    def form(trace: Trace) -> list[tuple[str, int | None, list[tuple[int, bool]]]]:
        return [(one.phase, one.first_product, [(piece, size > 0) for piece, size in one.events]) for one in trace]

    return form(small) == form(larger)


def _grown_event(small: Event, larger: Event, more: int) -> Event:
    """Return the event with `more` sequences. Where a smaller batch leads to 0 bytes or less, one byte is kept, so that
    it stays an allocation or a free."""
    piece, change = small
    size = grown(change, larger[1], more)
    return piece, max(size, 1) if change > 0 else min(size, -1)
