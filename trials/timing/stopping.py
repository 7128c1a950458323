"""Stopping rules: a fixed number of iterations, or with `auto` a criterion; in both cases also a time limit."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from lmsweep.trials.spec.words import Auto
from lmsweep.trials.statistics.median_interval import FEWEST as FEWEST_CORRELATED
from lmsweep.trials.statistics.median_interval import LEAST_EFFECTIVE_SIZE, effective_size_of, relative_half_width

Taken = TypeVar("Taken")

WINDOW = 5
"""Iterations per window."""
STEADY = 0.02
"""Iterations are steady if the medians of two windows differ by less than this share."""

FEWEST = 100
"""Fewest iterations that `auto` measures. Fewer would hide a slow drift or a late change of speed."""
FEWEST_OF_SLOW = 30
"""Fewest iterations once they have taken SLOW seconds."""
SLOW = 10.0
CHECK_EVERY = 10
"""Iterations between two checks of the interval. Checking after each would find it narrow by chance."""
NARROW = {"cuda": 0.01, "xpu": 0.01, "cpu": 0.03, "mps": 0.03}
"""Device type -> relative half-width of the median's confidence interval at which `auto` stops. Times by the host's
clock vary more."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The time after which `auto` gives up."""

    iterations: int
    seconds: float


WARMUP_LIMIT = Limit(iterations=50, seconds=60.0)
"""Five times the fewest (two windows). A step that is not steady by then is flagged `unsteady`."""
MEASURE_LIMIT = Limit(iterations=200, seconds=120.0)
"""Twice FEWEST. A median that is not known by then is flagged `not_converged`."""


def repeat(
    take: Callable[[], Taken],
    steps: int | Auto,
    enough: Callable[[list[Taken]], bool],
    limit: Limit,
    max_seconds: float | None = None,
) -> tuple[list[Taken], bool]:
    """Call `take` `steps` times, or with `auto` until `enough`; return its results and whether no limit ended it.
    `limit` applies to `auto` only. `max_seconds` replaces its seconds and applies to a fixed number of steps too.
    Limits are checked after each call, so there is at least one result unless `steps` is 0."""
    if steps == 0:
        return [], True
    most, seconds = (limit.iterations, limit.seconds) if steps == "auto" else (steps, math.inf)
    deadline = time.monotonic() + (seconds if max_seconds is None else max_seconds)
    taken = [take()]
    while not (enough(taken) if steps == "auto" else len(taken) == steps):
        if len(taken) == most or time.monotonic() >= deadline:
            return taken, False
        taken.append(take())
    return taken, True


def is_steady(seconds: Sequence[float], disturbances: Sequence[int]) -> bool:
    """Return whether the last two windows have nearly equal medians and nothing disturbed them. Windows do not overlap:
    the answer can be True only after 10, 15, 20, ... iterations. `disturbances` has one element more than `seconds`:
    the running count of events that a steady state does not have (compiled graphs, new memory segments, allocator
    retries)."""
    if len(seconds) < 2 * WINDOW or len(seconds) % WINDOW:
        return False
    count_before_windows = disturbances[-1 - 2 * WINDOW]
    if disturbances[-1] != count_before_windows:
        return False
    before, last = median(seconds[-2 * WINDOW : -WINDOW]), median(seconds[-WINDOW:])
    return abs(last - before) < STEADY * before


def is_narrow(seconds: Sequence[float], device_type: str, *, elapsed: float = 0.0) -> bool:
    """Return whether the median of these times is known well enough, from enough iterations to show a drift. `elapsed`:
    seconds since they began; from SLOW on, FEWEST_OF_SLOW iterations suffice."""
    fewest = FEWEST if elapsed < SLOW else FEWEST_OF_SLOW
    if len(seconds) < fewest or len(seconds) % CHECK_EVERY:
        return False
    return relative_half_width(seconds) <= NARROW[device_type]


def is_too_correlated(seconds: Sequence[float]) -> bool:
    """Return whether the samples are so correlated that their effective sample size is below LEAST_EFFECTIVE_SIZE."""
    return len(seconds) >= FEWEST_CORRELATED and effective_size_of(seconds) < LEAST_EFFECTIVE_SIZE
