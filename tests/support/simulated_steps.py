"""Times of steps whose true median is known: noise that remembers, and runs of slow steps."""

from typing import NamedTuple

import numpy as np

from lmsweep.trials.statistics.median_interval import Floats
from lmsweep.trials.statistics.pooling import pool_statistics
from lmsweep.trials.statistics.sample_stats import describe
from lmsweep.trials.statistics.trend import have_levels, have_trend
from lmsweep.trials.statistics.variation import PRIORS

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


def slow_runs(random: np.random.Generator, *, rows: int, n: int, exactly: bool = True) -> Floats:
    """Return the factor of each step, shape (rows, n). Fast runs are RUN steps long on average, and slow ones, too, or
    exactly."""
    found = np.ones((rows, n))
    for row in found:
        factor = random.uniform(1.05, 1.3)
        at = -int(random.integers(20 * RUN, 22 * RUN))
        while at < n:
            at += int(random.geometric(1 / RUN))
            length = RUN if exactly else int(random.geometric(1 / RUN))
            row[max(at, 0) : max(at + length, 0)] = factor
            at += length
    return found


class Unseen(NamedTuple):
    """Results of some processes of 100 steps with slow runs of random lengths, as shares."""

    off: float
    """Results more than 2 % off."""
    silent: float
    """Of these, those without a flag whose pooled interval does not hold the truth."""
    wholly: float
    """Of these, those in which no process has a fast step."""


def unseen(processes: int, *, spread: float, rows: int = 1000) -> Unseen:
    """Simulate wall times while the GPU is busy, with independent noise."""
    random, n, prior = np.random.default_rng(52), 100, PRIORS["wall"]
    count = rows * processes
    factors = slow_runs(random, rows=count, n=n, exactly=False)
    series = noise(random, rho=0, spread=spread, rows=count, n=n) * factors
    flagged, slow = (
        of.reshape(rows, processes) for of in (have_trend(series) | have_levels(series), (factors > 1).all(axis=1))
    )
    pooled = pool_statistics(
        describe(series.ravel(), np.arange(count + 1) * n),
        np.repeat(np.arange(rows), processes),
        rows,
        np.full(count, prior.scale),
        np.full(count, prior.freedom),
    )
    off = np.abs(pooled["median"] - 1) > 0.02
    silent = ~flagged.any(axis=1) & ((pooled["low"] > 1) | (pooled["high"] < 1))
    return Unseen(float(off.mean()), float(silent[off].mean()), float(slow.all(axis=1)[off].mean()))
