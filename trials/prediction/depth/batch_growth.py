"""The allocations of a step at any batch: each size is a multiple of the batch plus a constant."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lmsweep.trials.prediction.depth.operator_growth import grown
from lmsweep.trials.prediction.without_device.allocation_trace import Event, Trace


def peak_requested(small: Trace, larger: Trace, first: int) -> Callable[[int], int]:
    """Return batch -> peak of the bytes that a step requests, from traces of `first` sequences and of one more."""
    bytes_after_events, with_one_more = (
        np.cumsum(np.array([change for stretch in trace for _, change in stretch.events], dtype=np.int64))
        for trace in (small, larger)
    )
    growth = with_one_more - bytes_after_events
    return lambda batch: int((bytes_after_events + (batch - first) * growth).max())


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
    """Return the event with `more` sequences. At least one byte is kept, so that it stays an allocation or a free."""
    (piece, change), (_, larger_change) = small, larger
    size = grown(change, larger_change, more)
    return piece, max(size, 1) if change > 0 else min(size, -1)
