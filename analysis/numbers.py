"""Numbers as people read them: a unit that suits a whole column, and no more digits than the interval allows."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median_low


@dataclass(frozen=True, kw_only=True)
class Unit:
    name: str
    """As it is printed."""
    size: float
    """In the stored unit."""


def _units(*sizes: tuple[str, float]) -> tuple[Unit, ...]:
    return tuple(Unit(name=name, size=size) for name, size in sizes)


# Stored unit -> the units it is printed in, smallest first. Any other is printed as it is stored.
UNITS: dict[str, tuple[Unit, ...]] = {
    "s": _units(("us", 1e-6), ("ms", 1e-3), ("s", 1.0)),
    "B": _units(("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)),
    "J": _units(("mJ", 1e-3), ("J", 1.0), ("kJ", 1e3)),
    "B/s": _units(("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("TB/s", 1e12)),
    "Hz": _units(("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)),
    "FLOP/s": _units(("GFLOP/s", 1e9), ("TFLOP/s", 1e12)),
    "share": _units(("%", 0.01)),
}

ALL_UNKNOWN = 1e4
"""Where an interval reaches so many times as far as the number, nothing is known, and its digits would fill a line."""


def choose_unit(stored_unit: str, values: Iterable[float]) -> Unit:
    """The largest unit of which the middle one of the values is at least one; zeros and NaNs do not count."""
    units = UNITS.get(stored_unit, _units((stored_unit, 1.0)))
    known = [abs(value) for value in values if value and not math.isnan(value)]
    if not known:
        return units[-1]
    middle = median_low(known)
    return max((unit for unit in units if middle >= unit.size), key=lambda unit: unit.size, default=units[0])


def number_text(value: float) -> str:
    """A number of unknown accuracy: four significant digits, whole numbers in full, with an exponent below 0.0001."""
    if value == 0 or float(value).is_integer():
        return f"{value:.0f}"
    if abs(value) < 1e-4:
        return f"{value:.3e}"
    return _fixed(value, 3 - _exponent(value))


def interval_texts(median: float, low: float, high: float) -> tuple[str, str | None]:
    """The median, and its distance to the farther end of its interval (None where that is 0 or not known).

    The distance has one significant digit, or two where it begins with 1, and the median ends at the same digit; where
    that would leave the median fewer than two digits, both have more.
    """
    distance = max(median - low, high - median)
    if math.isnan(distance) or distance == 0:
        return number_text(median), None
    if median != 0 and distance >= ALL_UNKNOWN * abs(median):
        return _fixed(median, 1 - _exponent(median)), f"{distance:.0e}"
    exponent = _exponent(distance)
    digits = 2 if distance < 2 * 10.0**exponent else 1
    decimals = digits - 1 - exponent
    if median != 0:
        decimals = max(decimals, 1 - _exponent(median))
    return _fixed(median, decimals), _fixed(distance, decimals)


def _exponent(value: float) -> int:
    return math.floor(math.log10(abs(value)))


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals):.{max(decimals, 0)}f}"
