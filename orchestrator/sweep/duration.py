"""Reads durations: 30m, 2h, 1h30m, 90s."""

import re

from lmsweep.trials.spec.config import RequestError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str, option: str = "") -> float:
    """Return the seconds in `30m`, `2h`, `1h30m` or `90s`. Raises RequestError for other text; it names the option."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(map("".join, parts)) != text.strip() or seconds <= 0:
        raise RequestError(f"{f'{option} {text}'.lstrip()}: write a time, as in 30m, 2h or 1h30m")
    return seconds
