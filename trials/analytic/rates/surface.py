"""Corrects a formula by nearby measured points: the mean of log(measured / formula), weighted by distance."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

KERNEL_WIDTH = 0.7
"""Width of the Gaussian that weighs a point by its distance, in logarithms of dimensions: a factor of 2 in one."""
FORMULA_WEIGHT = 1.0
"""Weight of the formula itself, in points."""


class Surface:
    """Points of one class of operators, each with its place and its measured time over the formula's."""

    def __init__(self, places: Sequence[Sequence[float]], ratios: Sequence[float]) -> None:
        """places: logarithms of dimensions."""
        self._places = np.array(places, dtype=float).reshape(len(ratios), -1)
        self._logs = np.log(np.array(ratios, dtype=float))

    def at(self, place: Sequence[float]) -> float:
        """Return the measured time over the formula's: near 1 where no point is near by."""
        distances = ((self._places - np.array(place)) ** 2).sum(1)
        weights = np.exp(-distances / (2 * KERNEL_WIDTH**2))
        return math.exp(float(weights @ self._logs) / (float(weights.sum()) + FORMULA_WEIGHT))


def logs(*sizes: float) -> tuple[float, ...]:
    return tuple(math.log(max(size, 1.0)) for size in sizes)


class Curve:
    """Measured times over one size. Between two points, the time is a power of the size."""

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        """points: sizes and seconds."""
        ordered = sorted(points)
        self._sizes = [math.log(size) for size, _ in ordered]
        self._seconds = [math.log(seconds) for _, seconds in ordered]
        self.least_seconds = math.exp(min(self._seconds))

    def at(self, size: float) -> float:
        """Return the seconds; beyond the largest point they grow with the size, below the smallest they stay."""
        place, sizes, seconds = math.log(max(size, 1.0)), self._sizes, self._seconds
        above = bisect_left(sizes, place)
        if above == 0:
            return math.exp(seconds[0])
        if above == len(sizes):
            return math.exp(seconds[-1] + place - sizes[-1])
        share = (place - sizes[above - 1]) / (sizes[above] - sizes[above - 1])
        return math.exp(seconds[above - 1] + share * (seconds[above] - seconds[above - 1]))
