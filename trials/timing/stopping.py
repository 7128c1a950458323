"""When there have been enough iterations: a number that was asked for, or `auto`, which goes by what was measured; or
when they have taken as long as they may.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from lmsweep.trials.analytic.median_interval import FEWEST as FEWEST_CORRELATED
from lmsweep.trials.analytic.median_interval import independent_worth, relative_half_width
from lmsweep.trials.spec.config import Auto

Taken = TypeVar("Taken")

WINDOW = 5
STEADY = 0.02
"""Two windows of WINDOW iterations whose medians differ by less than this share are steady."""

FEWEST = 100
"""Iterations that `auto` measures at least: of fewer, a slow drift or a later change of pace would not be seen."""
FEWEST_OF_SLOW = 30
"""The same once they have taken SLOW seconds."""
SLOW = 10.0
EVERY = 10
"""Iterations between two looks at the interval: to look after each one would find it narrow by chance."""
LEAST_WORTH = 3.0
"""Independent iterations below which an interval of correlated ones covers too little."""
NARROW = {"cuda": 0.01, "cpu": 0.03, "mps": 0.03}
"""Half the width of the interval of the median, as a share of it, at which the median is known well enough."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Where `auto` gives up."""

    iterations: int
    seconds: float


WARMUP_LIMIT = Limit(iterations=50, seconds=60.0)
MEASURE_LIMIT = Limit(iterations=200, seconds=120.0)


def repeat(
    take: Callable[[], Taken],
    steps: int | Auto,
    enough: Callable[[list[Taken]], bool],
    limit: Limit,
    max_seconds: float | None = None,
) -> tuple[list[Taken], bool]:
    """What `take` returned, `steps` times; with auto until it is `enough` or the limit is reached. `max_seconds` stand
    in for the limit's, and hold for a number too.

    The second value is False where a limit ended it. Limits are looked at after each iteration, so that there is
    always one, unless none was asked for.
    """
    if steps != "auto":
        number = steps
        limit = Limit(iterations=steps, seconds=math.inf)

        def enough(taken: list[Taken]) -> bool:
            return len(taken) == number

    deadline = time.monotonic() + (limit.seconds if max_seconds is None else max_seconds)
    taken: list[Taken] = []
    while steps != 0 and not (taken and enough(taken)):
        if len(taken) == limit.iterations or (taken and time.monotonic() >= deadline):
            return taken, False
        taken.append(take())
    return taken, True


def is_steady(seconds: Sequence[float], disturbances: Sequence[int]) -> bool:
    """Whether the last two windows of these iterations have nearly the same median, and nothing disturbed them.

    Windows do not overlap: the answer can only be yes after 10, 15, 20, ... iterations. `disturbances` counts all that
    does not happen in a steady state (compiled graphs, new memory segments, allocator retries) before the first
    iteration and after each: one more number than `seconds` has.
    """
    if len(seconds) < 2 * WINDOW or len(seconds) % WINDOW:
        return False
    if disturbances[-1] != disturbances[-1 - 2 * WINDOW]:
        return False
    before, last = median(seconds[-2 * WINDOW : -WINDOW]), median(seconds[-WINDOW:])
    return abs(last - before) < STEADY * before


def is_narrow(seconds: Sequence[float], device_type: str, *, elapsed: float = 0.0) -> bool:
    """Whether the median of these iterations is known well enough, and drifts could have been seen in them: after 100,
    110, 120, ... of them at the earliest, or 30, 40, ... where `elapsed`, the seconds since they began, is long.
    """
    fewest = FEWEST if elapsed < SLOW else FEWEST_OF_SLOW
    if len(seconds) < fewest or len(seconds) % EVERY:
        return False
    return relative_half_width(seconds) <= NARROW[device_type]


def is_worth_little(seconds: Sequence[float]) -> bool:
    """Whether neighbours are so alike that these iterations tell less than LEAST_WORTH independent ones would."""
    return len(seconds) >= FEWEST_CORRELATED and independent_worth(seconds) < LEAST_WORTH
