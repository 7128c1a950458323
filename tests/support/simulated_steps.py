"""Times of steps whose true median is known: noise that remembers, and runs of slow steps."""

import numpy as np

from lmsweep.trials.statistics.median_interval import Floats

RUN = 50
"""Steps of a slow run."""


def noise(random: np.random.Generator, *, rho: float, spread: float, rows: int, n: int) -> Floats:
    """Return stationary AR(1) noise around 1, shape (rows, n); spread: its standard deviation."""
    found = np.empty((rows, n))
    state = random.standard_normal(rows)
    for i in range(n):
        found[:, i] = state
        state = rho * state + np.sqrt(1 - rho**2) * random.standard_normal(rows)
    return np.exp(spread * found)


def slow_runs(random: np.random.Generator, *, rows: int, n: int) -> Floats:
    """Return the factor of each step, shape (rows, n). Fast runs are RUN steps long on average, slow ones exactly."""
    found = np.ones((rows, n))
    for row in found:
        factor = random.uniform(1.05, 1.3)
        at = -int(random.integers(20 * RUN, 22 * RUN))
        while at < n:
            at += int(random.geometric(1 / RUN))
            row[max(at, 0) : max(at + RUN, 0)] = factor
            at += RUN
    return found
