"""Simulates a process that is slower for runs of 50 steps: how often its median is wrong and nothing says so.

    python -m benchmarks.slow_regimes [--rows 2000]

Noise is independent (rho 0) or an AR(1) process (rho 0.9), with a standard deviation of 1 or 3 %. In `slow`, half
of all steps, in runs of 50, take 1.05 to 1.3 times as long; the true median is that of the other half. `off` is the
share of series whose median is more than 2 % off. Of these: `silent` are not flagged and have an interval without the
true median; `wholly` are those whose every step was slow, which no test of one process can see. `given` and `covers`:
how often a series has an interval, and how often that contains the true median. `flagged` is by `unsteady`, for a trend
or for two levels.

The second table has slow runs that are 50 steps long on average: results of 1 to 3 processes of 100 steps, each with
the interval that tables print of the wall time of a busy GPU.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from tabulate import tabulate

from lmsweep.trials.statistics.median_interval import intervals
from lmsweep.trials.statistics.trend import have_levels, have_trend
from tests.support.simulated_steps import noise, slow_runs, unseen


def lines(rows: int) -> Iterator[list[object]]:
    random = np.random.default_rng(32)
    for n in (5, 10, 25, 50, 100, 200):
        for spread in (0.01, 0.03):
            for rho in (0.0, 0.9):
                for slow in (False, True):
                    factors = slow_runs(random, rows=rows, n=n) if slow else np.ones((rows, n))
                    series = noise(random, rho=rho, spread=spread, rows=rows, n=n) * factors
                    median, low, high = intervals(series)
                    given, misses = ~np.isnan(low), (low > 1) | (high < 1)
                    trend = have_trend(series)
                    flagged = trend | have_levels(series)
                    off = np.abs(median - 1) > 0.02
                    wholly = (factors > 1).all(axis=1)
                    shares = [given, ~misses[given], trend, flagged, off]
                    shares += [of[off] for of in (~trend & misses, ~flagged & misses, wholly)]
                    yield [
                        n,
                        spread,
                        rho,
                        "yes" if slow else "",
                        *(f"{of.mean():.1%}" if len(of) else "" for of in shares),
                    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000, help="series of each line")
    heads = ["n", "noise", "rho", "slow", "given", "covers", "trend", "flagged", "off"]
    heads += ["off: silent by trend alone", "off: silent", "off: wholly slow"]
    rows = parser.parse_args().rows
    print(tabulate(lines(rows), headers=heads, disable_numparse=True), end="\n\n")
    found = [
        [processes, spread, *(f"{share:.1%}" for share in unseen(processes, spread=spread, rows=rows))]
        for spread in (0.01, 0.03)
        for processes in (1, 2, 3)
    ]
    print(
        tabulate(found, headers=["processes", "noise", "off", "off: silent", "off: wholly slow"], disable_numparse=True)
    )


if __name__ == "__main__":
    main()
