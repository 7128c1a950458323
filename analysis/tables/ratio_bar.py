"""Bars of ratios for a terminal: to the right of the middle above 1, to the left below it, on a logarithmic scale."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST_RANGE = 1.25
"""The bars reach at least to this ratio, so that differences of a few per cent look small."""


class Bars(NamedTuple):
    header: str
    """What a full bar means: `up to 1.25x`, in either direction."""
    texts: list[str]
    """One bar per ratio, all of the same width; empty for NaN."""


def bars(ratios: NDArray[np.float64], *, width: int) -> Bars:
    """Return a bar for each ratio. `width` is odd: the middle column stands for 1."""
    half = width // 2
    logs = np.abs(np.log(ratios[np.isfinite(ratios) & (ratios > 0)]))
    reach = max(float(logs.max(initial=0.0)), float(np.log(LEAST_RANGE)))
    return Bars(header=f"up to {np.exp(reach):.3g}x", texts=[_bar(float(ratio), reach, half) for ratio in ratios])


def _bar(ratio: float, reach: float, half: int) -> str:
    if not math.isfinite(ratio) or ratio <= 0:
        return ""
    halves = round(abs(math.log(ratio)) / reach * half * 2)
    whole, space = "━" * (halves // 2), " " * (half - (halves + 1) // 2)
    if ratio < 1:
        return space + "╺" * (halves % 2) + whole + "│" + " " * half
    return " " * half + "│" + whole + "╸" * (halves % 2) + space
