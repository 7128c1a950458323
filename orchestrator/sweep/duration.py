"""Times as people write them: 30m, 2h, 1h30m, 90s."""

import re

from lmsweep.trials.spec.config import RequestError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str, option: str = "") -> float:
    """30m, 2h, 1h30m, 90s: seconds. Raises RequestError for anything else, which names the option if it is given."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(map("".join, parts)) != text.strip() or seconds <= 0:
        raise RequestError(f"{f'{option} {text}'.lstrip()}: write a time, as in 30m, 2h or 1h30m")
    return seconds
