"""Reads durations (30m, 2h, 1h30m, 90s) and end times (17:30)."""

import re
from datetime import datetime, timedelta

from lmsweep.trials.spec.config import RequestError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str, option: str = "") -> float:
    """Return the seconds in `30m`, `2h`, `1h30m` or `90s`. Raises RequestError for other text; it names the option."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(map("".join, parts)) != text.strip() or seconds <= 0:
        raise RequestError(f"{f'{option} {text}'.lstrip()}: write a time, as in 30m, 2h or 1h30m")
    return seconds


def seconds_until(text: str, option: str, *, now: datetime) -> float:
    """Return the seconds from `now` until `17:30`, today or tomorrow, or until `2026-11-22T17:30`, in local time.

    Raises RequestError for other text and for a date in the past; it names the option.
    """
    is_time = re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text.strip()) is not None
    try:
        end = datetime.fromisoformat(f"{now:%Y-%m-%d}T{text.strip():0>5}" if is_time else text.strip())
    except ValueError:
        raise RequestError(f"{option} {text}: write a time, as in 17:30 or 2026-11-22T17:30") from None
    if is_time and end <= now:
        end += timedelta(days=1)
    left = (end.astimezone() - now.astimezone()).total_seconds()
    if left <= 0:
        raise RequestError(f"{option} {text}: this time has passed")
    return left
