"""Reads what is written in a short form: ranges (`128..1024` doubles, `100..400+100` adds), durations, shards."""

import re
from datetime import datetime, timedelta
from typing import NamedTuple, TypeGuard

from lmsweep.trials.spec.errors import RequestError

MOST_VALUES = 10_000
"""Most values of one range; more are a mistake."""

_RANGE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})(?:\+([0-9]{1,18}))?")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def is_range(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _RANGE.fullmatch(value) is not None


def values_of(text: str) -> list[int]:
    """Return the numbers of a range, both ends included. Raises ValueError if the range is wrong; it says how."""
    found = _RANGE.fullmatch(text)
    assert found, "the caller has checked is_range"
    first, last, step = int(found[1]), int(found[2]), found[3] and int(found[3])  # step: None if not given
    if not 0 < first <= last:
        raise ValueError(f"the range {text} must start at 1 or more and must not fall")
    if step is None:
        doubled = [first << power for power in range(last.bit_length()) if first << power <= last]  # first * 2**power
        if doubled[-1] == last:
            return doubled
        raise ValueError(
            f"the range {text} doubles and does not reach {last} from {first}; to add a step, write {text}+STEP"
        )
    if not step or (last - first) % step:
        raise ValueError(f"the range {text} does not reach {last}; the step must divide {last - first}")
    numbers = range(first, last + 1, step)
    if len(numbers) > MOST_VALUES:
        raise ValueError(f"the range {text} has {len(numbers)} values; the most is {MOST_VALUES}")
    return list(numbers)


def seconds_of(text: str, option: str = "") -> float:
    """Return the seconds in `30m`, `2h`, `1h30m` or `90s`. Raises RequestError for other text; it names the option."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(map("".join, parts)) != text.strip() or seconds <= 0:  # something is between the parts, or no time
        raise RequestError(f"{f'{option} {text}'.lstrip()}: write a time, as in 30m, 2h or 1h30m")
    return seconds


class TimeLimit(NamedTuple):
    """What limits a run."""

    budget: str | None = None
    """30m, 2h, ..., from its start."""
    ends_at: float | None = None
    """time.monotonic() by which it must end, whatever the budget."""

    def until(self, began: float) -> float | None:
        """Return time.monotonic() at the end of a run that began then; None if nothing limits it."""
        ends = [began + seconds_of(self.budget)] if self.budget else []
        return min([*ends, *([self.ends_at] if self.ends_at is not None else [])], default=None)


def seconds_until(text: str, option: str, *, now: datetime) -> float:
    """Return the seconds from `now` until `17:30`, or `2026-11-22T17:30`, in local time. Raises RequestError."""
    is_time = re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text.strip()) is not None
    try:
        hour, _, rest = text.strip().partition(":")  # fromisoformat needs two digits of the hour
        end = datetime.fromisoformat(f"{now:%Y-%m-%d}T{hour:0>2}:{rest}" if is_time else text.strip())
    except ValueError:
        raise RequestError(f"{option} {text}: write a time, as in 17:30 or 2026-11-22T17:30") from None
    if is_time and end <= now:
        end += timedelta(days=1)
    left = (end.astimezone() - now.astimezone()).total_seconds()
    if left <= 0:
        raise RequestError(f"{option} {text}: this time has passed")
    return left


def shard(text: str) -> slice:
    """Return which trials of a sweep `3/16` selects: every 16th, as neighbours take about the same time. The shards of
    a sweep are disjoint, and together they are the sweep. Raises RequestError for other text."""
    found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise RequestError(
            f"--shard {text}: write NUMBER/COUNT, as in 3/16; NUMBER goes from 1 to COUNT "
            "(in Slurm: --array=1-16 and --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT)"
        )
    return slice(int(found[1]) - 1, None, int(found[2]))
