"""The largest batch size or context length that fits on a device."""

from collections.abc import Callable
from typing import NamedTuple

from lmsweep.trials.analytic.memory_prediction import Dimension, with_value
from lmsweep.trials.prediction.peak_memory import fits, predict
from lmsweep.trials.spec.config import TrialConfig

CONTEXT_UNIT = 64
"""Context lengths are tried in multiples of this many tokens."""


class LargestFit(NamedTuple):
    """Values of the dimension (sequences or tokens) around the limit; 0 if not even the smallest fits."""

    sure: int
    """The largest that is sure to fit."""
    possible: int
    """The largest that may fit."""


def largest_that_fits(config: TrialConfig, dimension: Dimension, budget: int, device_name: str) -> LargestFit:
    """The largest batch size, or context length in multiples of CONTEXT_UNIT, that fits into `budget` bytes. Raises as
    `predict` does."""
    unit = CONTEXT_UNIT if dimension == "context_length" else 1

    def peak(units: int) -> int:
        return predict(with_value(config, dimension, units * unit)).on(device_name).peak

    most = _most_by_peak(peak, budget)
    if config.device_type != "cuda" or most == 0:
        return LargestFit(sure=most * unit, possible=most * unit)

    def verdict(units: int) -> bool | None:
        return fits(with_value(config, dimension, units * unit), "model", budget, device_name)

    # Fragmentation leaves room for a few per cent less than the peak alone suggests.
    too_many, step = most + 1, 1
    while (sure := too_many - step) > 0 and verdict(sure) is not True:
        too_many, step = sure, 2 * step
    sure = max(sure, 0)
    while too_many - sure > 1:
        middle = (sure + too_many) // 2
        if verdict(middle):
            sure = middle
        else:
            too_many = middle
    possible = sure
    while possible < most and verdict(possible + 1) is not False:
        possible += 1
    return LargestFit(sure=sure * unit, possible=possible * unit)


def _most_by_peak(peak: Callable[[int], int], budget: int) -> int:
    """The largest number whose peak is at most `budget` bytes; 0 if there is none."""
    fitting, low = 1, peak(1)
    if low > budget:
        return 0
    too_many = 8
    while (high := peak(too_many)) <= budget:
        fitting, low = too_many, high
        too_many *= 8
    # Memory is convex in both dimensions, so what the chord between two points allows does fit. Where it bends, bisect.
    while too_many - fitting > 1:
        chord = fitting + (budget - low) * (too_many - fitting) // (high - low)
        for guess in (chord, chord + 1, (fitting + too_many) // 2):
            if fitting < guess < too_many:
                found = peak(guess)
                if found <= budget:
                    fitting, low = guess, found
                else:
                    too_many, high = guess, found
    return fitting
