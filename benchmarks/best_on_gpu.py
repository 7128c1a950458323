"""Searches a grid of 256 combinations three times, measures all of it, and says how right and cheap the searches were.

    python benchmarks/best_on_gpu.py OUT

It needs a GPU, and an hour or more. Killed, it goes on where it was: every step stores what it measures in OUT. The
other ways to search are simulated on the measured grid with benchmarks/best_simulation.py.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import pandas as pd

from lmsweep.analysis import load
from lmsweep.analysis.best.answer import Answer, answer
from lmsweep.analysis.best.cells import Cell, cells_of
from lmsweep.analysis.best.goal import Aim, Goal
from lmsweep.trials.spec.identity import trial_id

SWEEP = Path(__file__).parent / "best-grid.yaml"
REPEATS = 3
AIM = Aim(goal=Goal.SPEED)


def lmsweep(*arguments: str) -> None:
    """Run the command. It exits with 1 if a trial failed in a way that a retry may mend, which is no reason to stop."""
    done = subprocess.run([sys.executable, "-m", "lmsweep", *arguments], check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)


def device_seconds(frame: pd.DataFrame) -> float:
    """Return the seconds of all trials, from the start of their process to their end."""
    times = frame[(frame["phase"] == "trial") & (frame["unit"] == "s")]
    return float((times["median"] * times["n"]).sum())


def found_in(store: Path) -> Answer:
    """Return the answer in a store."""
    found = answer(cells_of(load(str(store))), AIM)
    assert isinstance(found, Answer), found
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    searches = [out / f"search-{number}" for number in range(REPEATS)]
    for store in searches:
        lmsweep("best", str(SWEEP), "--store", str(store))
    grid = out / "grid"
    lmsweep("run", str(SWEEP), "--store", str(grid))

    cells: dict[str, Cell] = {trial_id(cell.config): cell for cell in cells_of(load(str(grid)))}
    best, whole = found_in(grid).winner.cost(AIM), device_seconds(load(str(grid), pooled=False))
    assert best, "the best cell of the grid has a cost"
    print("| search | trials | of the grid's device time | its winner in the grid, behind the grid's best |")
    print("|---|---|---|---|")
    for store in searches:
        frame = load(str(store), pooled=False)
        there = cells[trial_id(found_in(store).winner.config)].cost(AIM)
        behind = f"{there.median / best.median - 1:.1%}" if there else "failed in the grid"
        share = device_seconds(frame) / whole
        print(f"| {store.name} | {frame['attempt_id'].nunique()} | {share:.1%} | {behind} |")
    simulation = [sys.executable, str(Path(__file__).parent / "best_simulation.py"), "--store", str(grid)]
    subprocess.run([*simulation, "--draws", "1000"], check=True)


if __name__ == "__main__":
    main()
