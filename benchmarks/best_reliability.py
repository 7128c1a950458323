"""Simulates how often `lmsweep best` is as right as it says, on grids whose every cell is known.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.best_reliability --draws 300

The grids are those of tests/support/grid_families.py, in five families. Processes differ as in the shipped stores,
by the share of the step for which the GPU is busy; or all cells by 1, 3 and 7 %, where the search
begins with the shipped priors for the wall time of a busy GPU (0.4 %),
of one that waits (2 %) and of a host (10 %). It learns the rest from its own repetitions. Columns:

right, cannot tell, wrong: an answer is right if it is at most 2 % worse than the best cell of the grid. something left
out: the mean of the printed probability that a cell that did not run is more than 1 % better, and how often one was.
covers: how often the winner's interval, and those of its ratios to the nearest five, hold the truth. sure: of the
nearest five, those whose printed probability that the winner is better exceeds 95 %: its mean, and how often.
"""

import argparse
import itertools
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from lmsweep.orchestrator.features.best.standing import MOST_WRONG, RIGHT_MARGIN
from lmsweep.trials.statistics.variation import Kind
from tests.support.grid_families import FAMILIES
from tests.support.simulated_grids import TEST_SEEDS, simulate

NOISES: dict[float | None, Kind | None] = {None: None, 0.01: "wall", 0.03: "wall_waits", 0.07: "host"}
"""Standard deviation between processes, and the kind of time whose shipped prior the search begins with; None: those of
each cell."""
SURE = 0.95
TITLES = (
    "grids", "between processes", "right", "cannot tell", "wrong", "something left out: said", "true",
    "covers: winner, ratios", "sure: said, true", "cells, trials", "of the grid's device time",
)  # fmt: skip


def line(family: str, found: Sequence[dict[str, Any]]) -> str:
    """Return a row of the table."""

    def mean(name: str) -> float:
        return float(np.mean([one[name] for one in found]))

    noise = "as measured" if found[0]["noise"] is None else f"{found[0]['noise']:.0%}"
    answers = [one["wrong"] < MOST_WRONG for one in found]
    right = [one["behind"] <= np.log1p(RIGHT_MARGIN) for one in found]
    pairs = [pair for one in found for pair in one["pairs"]]
    sure = [pair for pair in pairs if pair[0] >= SURE]
    return (
        f"| {family} | {noise} | {np.mean(np.array(answers) & right):.1%} | "
        f"{1 - np.mean(answers):.1%} | {np.mean(np.array(answers) & ~np.array(right)):.1%} | {mean('doubt'):.1%} | "
        f"{mean('is_left'):.1%} | {mean('covers'):.0%}, {np.mean([pair[2] for pair in pairs]):.0%} | "
        f"{np.mean([pair[0] for pair in sure]):.1%}, {np.mean([pair[1] for pair in sure]):.1%} | "
        f"{mean('cells'):.0f}, {mean('trials'):.0f} | {mean('share'):.1%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100, help="of each family and noise")
    parser.add_argument("--family", action="append", choices=[*FAMILIES], default=[])
    parser.add_argument("--tuning", action="store_true", help="the seeds below TEST_SEEDS, for changes of the search")
    parser.add_argument("--raw", type=Path, help="write one JSON line per draw to this file")
    given = parser.parse_args()
    first = 0 if given.tuning else TEST_SEEDS
    print(f"| {' | '.join(TITLES)} |\n|{'---|' * len(TITLES)}")
    with ProcessPoolExecutor() as pool:
        for family, (noise, kind) in itertools.product(given.family or FAMILIES, NOISES.items()):
            each = [pool.submit(simulate, first + seed, FAMILIES[family], noise, kind) for seed in range(given.draws)]
            found = [one.result() for one in each]
            print(line(family, found), flush=True)
            if given.raw:
                with given.raw.open("a") as file:
                    file.writelines(f"{json.dumps({'family': family, **one})}\n" for one in found)


if __name__ == "__main__":
    main()
