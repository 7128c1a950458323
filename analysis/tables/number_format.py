"""Formats numbers for people: one unit for a whole column, and no more digits than the interval justifies."""

import math
from collections.abc import Iterable
from statistics import median_low

from lmsweep.trials.results.metrics import Unit, printed_units

EXPONENT_REACH = 1e4
"""An interval that reaches this many times the number away from it is printed with an exponent."""

SMALLEST, LARGEST = 1e-21, 1e21
"""Numbers beyond these are printed with an exponent: no quantity that is measured reaches them."""
MOST_DECIMALS = 25  # more than four digits of SMALLEST need


def choose_unit(stored_unit: str, values: Iterable[float]) -> Unit:
    """Return the largest unit in which the median of the values is at least 1; zeros and NaNs are ignored."""
    smallest_first = printed_units(stored_unit)
    known = [abs(value) for value in values if value and not math.isnan(value)]
    if not known:
        return smallest_first[-1]  # no number needs one
    middle = median_low(known)
    small_enough = [unit for unit in smallest_first if unit.size <= middle]
    return small_enough[-1] if small_enough else smallest_first[0]


def number_text(value: float) -> str:
    """Return any number without an interval: four significant digits, integers in full, an exponent below 0.0001."""
    if not math.isfinite(value) or abs(value) >= LARGEST:
        return f"{value:.3e}"
    if math.isclose(value, round(value), rel_tol=1e-12):  # a sum in another order differs in its last digits
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


def interval_texts(median: float, low: float, high: float) -> tuple[str, str | None]:
    """Return the median and its interval as texts, `53` and `[41, 117]`; no interval if it is unknown or has no width.

    All end at the same digit: the first of half the interval's width, or the second if the first is 1. With a half
    width of 4.5 there are no decimals, with 1.3 there is one. But the median has at least two digits.
    """
    distance = (high - low) / 2
    if not math.isfinite(low) or not math.isfinite(high) or distance == 0:
        return number_text(median), None
    sizes = [distance, abs(median)] if median else [distance]
    if not all(SMALLEST <= size < LARGEST for size in sizes) or (median and distance >= EXPONENT_REACH * abs(median)):
        return f"{median:.2g}", f"[{low:.0e}, {high:.0e}]"
    exponent = _exponent(distance)
    decimals = 1 - exponent if distance < 2 * 10.0**exponent else -exponent
    if median != 0:
        decimals = max(decimals, 1 - _exponent(median))
    return _fixed(median, decimals), f"[{_fixed(low, decimals)}, {_fixed(high, decimals)}]"


def _exponent(value: float) -> int:
    return math.floor(math.log10(abs(value)))


def _fixed(value: float, decimals: int) -> str:
    decimals = min(decimals, MOST_DECIMALS)
    return f"{round(value, decimals):.{max(decimals, 0)}f}"
