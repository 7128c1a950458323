"""How long a collective takes: from measured times of messages of other sizes, or from the datasheet of the link."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from lmsweep.trials.spec.words import Collective

LATENCY_SECONDS = 20e-6
"""Assumed time of a collective without data, if none was measured."""

SHARE_OF_LINK = 0.77
"""Share of a link's datasheet bandwidth that large collectives reach: 348 of 450 GB/s (`h200-x2-ddp`)."""


class Point(NamedTuple):
    """One measured collective; the size of its message is in bytes, as nccl-tests counts them."""

    size: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CollectiveTimes:
    """The times of collectives between some ranks."""

    bandwidth: float
    """Bus bandwidth of a large all-reduce, B/s."""
    latency: float = LATENCY_SECONDS
    """Seconds of a collective without data."""
    measured: Mapping[Collective, Sequence[Point]]
    """Measured times by kind, in order of size, of the same number of ranks."""
    source: str
    """Where the numbers come from, in words for a user."""

    def seconds(self, kind: Collective, size: float, ranks: int) -> float:
        """Return the seconds of a collective of `size` bytes: measured, between two measured ones, or by bandwidth."""
        factor = bus_factor(kind, ranks)
        if not factor:
            return 0.0
        points = self.measured.get(kind, ())
        if not points:
            return self.latency + factor * size / self.bandwidth
        sizes = [point.size for point in points]
        if size <= sizes[0]:
            return points[0].seconds
        if size >= sizes[-1]:
            return points[-1].seconds * size / sizes[-1]
        above = bisect_left(sizes, size)  # between two sizes the time is a power of the size
        (small, short), (large, long) = points[above - 1], points[above]
        power = math.log(long / short) / math.log(large / small)
        return short * math.exp(power * math.log(size / small))


def from_datasheet(bandwidth: float, name: str) -> CollectiveTimes:
    """Return the times between devices of this name, whose datasheet states the bandwidth, B/s in one direction."""
    words = f"{SHARE_OF_LINK:.0%} of the datasheet's {bandwidth / 1e9:g} GB/s of {name}"
    return CollectiveTimes(bandwidth=SHARE_OF_LINK * bandwidth, measured={}, source=words)


def in_order(points: Iterable[Point]) -> list[Point]:
    """Return the points by size, the shortest of each size, none shorter than one of a smaller size."""
    best: dict[int, float] = {}
    for size, seconds in points:
        best[size] = min(seconds, best.get(size, math.inf))
    longest = accumulate((best[size] for size in sorted(best)), max)
    return [Point(size, seconds) for size, seconds in zip(sorted(best), longest, strict=True)]


def bus_factor(collective: Collective, ranks: int) -> float:
    """Bytes that each of n ranks sends, per byte of the message: bus bandwidth per algorithm bandwidth. 2 (n - 1) / n
    for an all-reduce, 1 for a broadcast and for one message, else (n - 1) / n (NVIDIA nccl-tests,
    doc/PERFORMANCE.md)."""
    if ranks == 1:
        return 0.0
    if collective in ("broadcast", "send_recv"):
        return 1.0
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks
