"""Races for the best of 208 combinations on a GPU: what a search finds, beside the whole grid and other ways to search.

    python benchmarks/best_on_gpu.py measure OUT --budget 9m    # on the GPU, as often as it takes
    python benchmarks/best_on_gpu.py report OUT                 # anywhere

Other options of `measure` are passed to both commands.

`measure` runs one search (OUT/race), then the whole grid (OUT/grid), each with a compile cache of its own, so that
neither finds the other's graphs. Both are stores: copied from session to session as files, they resume on the same
type of GPU with the same software. `report` says how far the search's winner is behind the best of
the grid, and for how much of its device time. Device time is the time from the start of a trial to its end, the
compilation ahead of it included.

The other races are replays: a search, random search, DeepSpeed's method and, if it is installed, Optuna's estimator
choose among the rows of the grid. They decide as they would on the GPU, by the median that the chosen trial had, moved
by the variation between processes, which the seed draws. Each choice takes the time that its trial took; what was
compiled ahead is spread over the trials that compile. They cost no device time. A real search compiles fewer graphs at
once than a run of the grid, so its share, which the measured race shows, is larger than that of its replay.

The best is the one with the least device time per token (the goal $/Mtoken), because it repeats within 1 %. Wall time
depends on the host as well, and two runs differ by up to 31 % in it.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd
from best_simulation import MICRO_BATCH, RANDOM, TEST_SEEDS, TPE, draw_stored, race, rows, stored_grids

from lmsweep.analysis import load
from lmsweep.analysis.best.answer import Answer, answer
from lmsweep.analysis.best.cells import Cell, cells_of, key_of
from lmsweep.analysis.best.goal import Aim, parse_aim
from lmsweep.orchestrator.sweep.ranges import seconds_of
from lmsweep.trials.analytic.prices import parse_prices

SWEEP = str(Path(__file__).parent / "best-grid.yaml")
REPLAYS, DRAWS = 3, 1000
PRICES = ("H100=2.5",)
"""Dollars per hour; any price gives the same winner."""


def measure(out: Path, *, sweep: str, prices: Sequence[str], budget: str, more: Sequence[str]) -> None:
    """Run the search, unless it has ended before, and of the grid what the budget allows. more: for both commands."""
    ends = time.monotonic() + seconds_of(budget)
    goal = ("--goal", "$/Mtoken", *(word for price in prices for word in ("--price", price)))
    for verb, store, options in (("best", "race", goal), ("run", "grid", ())):
        left = int(ends - time.monotonic())
        if left > 0 and (store == "grid" or not (out / "grid").exists()):
            arguments = (verb, sweep, "--store", str(out / store), "--budget", f"{left}s", *options, *more)
            lmsweep(*arguments, cache=Path(tempfile.gettempdir()) / f"lmsweep-{store}-compile-cache")


def lmsweep(*arguments: str, cache: Path) -> None:
    """Run the command. It exits with 1 if a trial failed in a way that a retry may mend, which is no reason to stop."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "lmsweep", *arguments], check=False, env=os.environ | caches)
    print(f"lmsweep {arguments[0]} took {time.monotonic() - began:.0f} s", flush=True)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)


def report(out: Path, *, prices: Sequence[str], clock: str) -> None:
    """Print the real race, then the replays. clock: the time that is to be small."""
    grid = str(out / "grid")
    cells = cells_of(load(grid))
    aim = parse_aim("$/Mtoken", [], parse_prices([*prices]))
    best, whole = winner(grid, aim), device_seconds(grid)
    counts = pd.Series([cell.status for cell in cells]).value_counts().to_dict()
    print(f"{len(cells)} combinations measured, {whole:.0f} s of device time: {counts}")
    if (out / "race").exists():
        found = winner(str(out / "race"), aim)
        there = next((cell.cost(aim) for cell in cells if key_of(cell.config) == key_of(found.config)), None)
        cost = best.cost(aim)
        assert cost, "a winner has a cost"
        behind = f"{there.median / cost.median - 1:.2%} behind" if there else "without a result in the grid"
        share = device_seconds(str(out / "race")) / whole
        trials = load(str(out / "race"), pooled=False)["attempt_id"].nunique()
        print(f"Measured race: {trials} trials, {share:.1%} of the grid's device time; its winner is {behind}")
    grids = stored_grids(grid, pool=False, clock=clock)
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
    parser.add_argument("--price", action="append", help=f"of the GPU, {PRICES[0]}; repeatable")
    parser.add_argument("--budget", default="9m", help="time for `measure`")
    parser.add_argument("--sweep", default=SWEEP, help="another grid")
    parser.add_argument("--clock", default="step.device_time", help="of `report`; step.time for a grid of a CPU")
    given, more = parser.parse_known_args()
    prices = given.price or PRICES
    if given.step == "measure":
        measure(given.out, sweep=given.sweep, prices=prices, budget=given.budget, more=more)
    else:
        report(given.out, prices=prices, clock=given.clock)


if __name__ == "__main__":
    main()
