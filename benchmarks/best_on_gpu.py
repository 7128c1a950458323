"""Races for the best of 288 combinations on a GPU: what a search finds, beside the whole grid and other ways to search.

    python benchmarks/best_on_gpu.py measure OUT --budget 9m    # on the GPU, as often as it takes
    python benchmarks/best_on_gpu.py report OUT                 # anywhere

`measure` runs one search (OUT/race), then the whole grid (OUT/grid). Both are stores: carried from session to session
as files, they go on where they were, on the same type of GPU with the same software. `report` says how far the search's
winner is behind the best of the grid, and for how much of its device time.

The other races are replays: a search, random search, DeepSpeed's method and, if it is installed, Optuna's estimator
choose among the rows of the grid, and each choice takes the time that its trial took. They cost no device time.

The best is the one with the least device time per token (the goal $/Mtoken), because it repeats within 1 %. Wall time
depends on the host as well, and two runs differ by up to 31 % in it.
"""

import argparse
import importlib.util
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pandas as pd
from best_simulation import MICRO_BATCH, RANDOM, TEST_SEEDS, TPE, draw_stored, race, rows, stored_grids

from lmsweep.analysis import load
from lmsweep.analysis.best.answer import Answer, answer
from lmsweep.analysis.best.cells import Cell, cells_of, key_of
from lmsweep.analysis.best.goal import Aim, parse_aim
from lmsweep.orchestrator.sweep.duration import seconds_of
from lmsweep.trials.analytic.prices import parse_prices

SWEEP = str(Path(__file__).parent / "best-grid.yaml")
CLOCK = "step.device_time"
REPLAYS, DRAWS = 3, 1000


def measure(out: Path, price: str, budget: str) -> None:
    """Run the search, and of the grid what the budget allows."""
    ends = time.monotonic() + seconds_of(budget)
    lmsweep("best", SWEEP, "--store", str(out / "race"), "--goal", "$/Mtoken", "--price", price, "--budget", budget)
    left = int(ends - time.monotonic())
    if left > 0:
        lmsweep("run", SWEEP, "--store", str(out / "grid"), "--budget", f"{left}s")


def lmsweep(*arguments: str) -> None:
    """Run the command. It exits with 1 if a trial failed in a way that a retry may mend, which is no reason to stop."""
    done = subprocess.run([sys.executable, "-m", "lmsweep", *arguments], check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)


def report(out: Path, price: str) -> None:
    """Print the real race, then the replays."""
    grid = str(out / "grid")
    cells = cells_of(load(grid))
    aim = parse_aim("$/Mtoken", [], parse_prices([price]))
    best, whole = winner(grid, aim), device_seconds(grid)
    counts = pd.Series([cell.status for cell in cells]).value_counts().to_dict()
    print(f"{len(cells)} combinations measured, {whole:.0f} s of device time: {counts}")
    if (out / "race").exists():
        found = winner(str(out / "race"), aim)
        there = next(cell.cost(aim) for cell in cells if key_of(cell.config) == key_of(found.config))
        cost = best.cost(aim)
        assert cost, "a winner has a cost"
        behind = f"{there.median / cost.median - 1:.2%}" if there else "failed in the grid"
        share = device_seconds(str(out / "race")) / whole
        trials = load(str(out / "race"), pooled=False)["attempt_id"].nunique()
        print(f"Measured race: {trials} trials, {share:.1%} of the grid's device time; its winner is {behind} behind")
    grids = stored_grids(grid, pool=False, clock=CLOCK)
    for seed in range(TEST_SEEDS, TEST_SEEDS + REPLAYS):
        (one,) = race(seed, draw=partial(draw_stored, grids))
        print(f"Replayed race: {one.trials} trials, {one.share:.1%} of the grid's device time; {one.behind:.2%} behind")
    others = (RANDOM, *MICRO_BATCH, *((TPE,) if importlib.util.find_spec("optuna") else ()))
    print(f"\n{DRAWS} replays, each with every cell moved by its error and the variation between processes:\n")
    for line in rows(range(TEST_SEEDS, TEST_SEEDS + DRAWS), others, partial(draw_stored, grids)):
        print(line, flush=True)


def winner(store: str, aim: Aim) -> Cell:
    """Return the best cell of a store."""
    found = answer(cells_of(load(store)), aim)
    assert isinstance(found, Answer), found
    return found.winner


def device_seconds(store: str) -> float:
    """Return the seconds of all trials in a store, from the start of their process to their end."""
    frame = load(store, pooled=False)
    times = frame[(frame["phase"] == "trial") & (frame["unit"] == "s")]
    return float((times["median"] * times["n"]).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["measure", "report"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--price", default="H100=2.5", help="of the GPU; any price gives the same winner")
    parser.add_argument("--budget", default="9m", help="time for `measure`")
    given = parser.parse_args()
    if given.step == "measure":
        measure(given.out, given.price, given.budget)
    else:
        report(given.out, given.price)


if __name__ == "__main__":
    main()
