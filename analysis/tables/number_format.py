"""Formats numbers for people: one unit for a whole column, and no more digits than the interval justifies."""

import math
from collections.abc import Iterable
from statistics import median_low

from lmsweep.analysis.data.columns import NO_VALUE
from lmsweep.trials.results.metrics import Unit, printed_units

EXPONENT_REACH = 1e4
"""An interval that reaches this many times the number away from it is printed with an exponent."""

SYMMETRIC_RATIO = 2 / 3
"""± is printed if the shorter half of the interval is at least this share of the longer half."""
SYMMETRIC_DIFFERENCE = 0.01
"""± is also printed if the halves differ by at most this share of the number."""


SMALLEST, LARGEST = 1e-21, 1e21
"""Numbers beyond these are printed with an exponent: no quantity that is measured reaches them."""
MOST_DECIMALS = 25


def choose_unit(stored_unit: str, values: Iterable[float]) -> Unit:
    """Return the largest unit in which the median of the values is at least 1; zeros and NaNs are ignored."""
    units = printed_units(stored_unit)
    known = [abs(value) for value in values if value and not math.isnan(value)]
    if not known:
        return units[-1]
    middle = median_low(known)
    return max((unit for unit in units if middle >= unit.size), key=lambda unit: unit.size, default=units[0])


def number_text(value: float) -> str:
    """Return any number without an interval: four significant digits, integers in full, an exponent below 0.0001."""
    if not math.isfinite(value) or abs(value) >= LARGEST:
        return f"{value:.3e}"
    if math.isclose(value, round(value), rel_tol=1e-12):  # the last digits are those of the order of a sum
        return f"{value:.0f}"
    if abs(value) < 1e-4:
        return f"{value:.3e}"
    return _fixed(value, 3 - _exponent(value))


def two_digits(value: float) -> str:
    """Return a number with two significant digits, and from 10 on as an integer: `0.27`, `3.1`, `284`."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def percent(share: float) -> str:
    return f"{two_digits(100 * share)} %"


def p_text(p: float) -> str:
    if p < 0.001:
        return "<0.001"
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def size_text(value: float, unit: str) -> str:
    if math.isnan(value):
        return NO_VALUE
    printed = choose_unit(unit, [value])
    return f"{value / printed.size:.3g} {printed.name}"


def interval_texts(median: float, low: float, high: float) -> tuple[str, str | None]:
    """Return the median and its interval as texts; the interval is None if it is unknown or has no width.

    The interval is `± 0.05` if both ends are about equally far from the median, else `[41, 117]`. The distance after ±
    is the one to the farther end, with one significant digit, or two if the first is 1; two ends have two significant
    digits of their difference. The median ends at the same digit and has at least two.
    """
    below, above = median - low, high - median
    distance = max(below, above)
    if not math.isfinite(below) or not math.isfinite(above) or distance == 0:
        return number_text(median), None
    even = _is_even(median, low, high)
    extreme = f"{median:.3e}", f"[{low:.1e}, {high:.1e}]"
    if median and not SMALLEST <= abs(median) < LARGEST:
        return extreme
    if median != 0 and distance >= EXPONENT_REACH * abs(median):
        return _fixed(median, 1 - _exponent(median)), f"± {distance:.0e}" if even else f"[{low:.0e}, {high:.0e}]"
    if not SMALLEST <= distance < LARGEST:
        return extreme
    measure = distance if even else high - low
    digits = 2 if not even or measure < 2 * 10.0 ** _exponent(measure) else 1
    decimals = digits - 1 - _exponent(measure)
    if median != 0:
        decimals = max(decimals, 1 - _exponent(median))
    if even:
        return _fixed(median, decimals), f"± {_fixed(distance, decimals)}"
    return _fixed(median, decimals), f"[{_fixed(low, decimals)}, {_fixed(high, decimals)}]"


def _is_even(median: float, low: float, high: float) -> bool:
    """Whether median ± the distance to the farther end describes both ends fairly, including their sign."""
    nearer, farther = sorted((median - low, high - median))
    keeps_sign = (low <= 0 or median > farther) and (high >= 0 or median < -farther)
    return (
        nearer >= SYMMETRIC_RATIO * farther or farther - nearer <= SYMMETRIC_DIFFERENCE * abs(median)
    ) and keeps_sign


def _exponent(value: float) -> int:
    return math.floor(math.log10(abs(value)))


def _fixed(value: float, decimals: int) -> str:
    decimals = min(decimals, MOST_DECIMALS)
    return f"{round(value, decimals):.{max(decimals, 0)}f}"
