"""Simulates searches for the best cell on grids whose every cell is known, beside other ways to search.

    python benchmarks/best_simulation.py --draws 1000

Each draw is a made-up training step: the device computes, moves bytes and waits for the host, in amounts drawn at
random; attention, compilation, checkpointing, precision and the optimizer change them. On top come interactions of each
pair of axes (3 %), what remains of a cell (1.5 %) and the variation between processes (1 %), as in the reference sets.
Cells that do not fit are left out, as the plan leaves them out. A trial takes 3 s, the time of its compiler, and 60
iterations. `--store` draws from the cells of a stored grid instead, with the intervals that were measured.

`right` is the share of draws whose answer is at most 2 % worse than the best cell. The other ways get as much device
time as the search took, and 25 % of the grid's. `micro-batch first` is the method of DeepSpeed's autotuner: with
everything else at its default, the best batch; with that batch, the rest of the grid in random order.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from lmsweep.analysis.best.cells import BETWEEN_PROCESSES
from lmsweep.analysis.best.surrogate import Axis, Space
from lmsweep.orchestrator.searching.search import Search
from lmsweep.trials.analytic.median_interval import Floats

AXES: dict[str, tuple[object, ...]] = {
    "batch_size": (1, 2, 4, 8, 16, 32),
    "attention": ("naive", "naive_softmax", "sdpa", "sdpa_flash", "sdpa_cudnn"),
    "compile": ("none", "block", "model"),
    "checkpointing": ("none", "block"),
    "precision": ("tf32", "bf16"),
    "optimizer": ("adamw_fused", "adamw_foreach"),
}
INTERACTION, REST = 0.03, 0.015
"""Standard deviations of the logarithm."""
LAYERS, ITERATIONS, SETUP_SECONDS = 24, 60, 3.0
COMPILE_SECONDS = {"none": 0.0, "block": 15.0, "model": 50.0}
CLOSE = 0.02
"""How much worse than the best an answer may be and still be right."""
SHARE = 0.25
"""Share of the grid's device time that an answer may take."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid of which everything is known. All arrays have one value per cell."""

    space: Space
    cost: Floats
    """Logarithm of the seconds per token."""
    prior: Floats
    """What a time model expects of it."""
    seconds: Floats
    """Device time of the cell's trial."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one way to search ended."""

    trials: int
    share: float
    """Share of the grid's device time."""
    behind: float
    """How much worse the answer is than the best cell, as a share."""


def made_up(rng: np.random.Generator, *, harder: float = 1.0, has_prior: bool = True) -> Grid:
    """Draw a grid.

    harder: factor of INTERACTION and REST. has_prior: whether the search has a time model.
    """

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    product, naive, fused = between(0.3, 3), between(0.3, 3), between(0.08, 0.4)
    of_attention = {"naive": naive, "naive_softmax": naive * between(0.5, 0.9)}
    of_attention |= {name: naive * fused * between(0.85, 1.15) for name in ("sdpa", "sdpa_flash", "sdpa_cudnn")}
    memory_bound = {"none": between(0.2, 1.5)}
    memory_bound["block"] = memory_bound["none"] * between(0.3, 0.7)
    memory_bound["model"] = memory_bound["block"] * between(0.9, 1.1)
    host = {"none": between(1, 12)}
    host["block"] = host["none"] * between(0.3, 0.7)
    host["model"] = host["block"] * between(0.6, 1)
    optimizer = {"adamw_fused": between(0.2, 2)}
    optimizer["adamw_foreach"] = optimizer["adamw_fused"] * between(1, 1.6)
    tf32, recomputing, room = between(1.8, 3.2), between(1.15, 1.35), between(8, 200)
    pairs = {
        (a, b): harder * rng.normal(0, INTERACTION, (len(AXES[a]), len(AXES[b])))
        for a, b in itertools.combinations(AXES, 2)
    }
    names, cells, cost, prior, seconds = list(AXES), [], [], [], []
    for cell in itertools.product(*AXES.values()):
        batch, attention, compiled, checkpointing, precision, stepped = cell
        assert isinstance(batch, int), "a batch is a number"
        narrow, again = precision == "bf16", 1.0 if checkpointing == "none" else recomputing
        per_sequence = product * (1 if narrow else tf32) + of_attention[str(attention)]
        per_sequence += memory_bound[str(compiled)] * (1 if narrow else 1.6)
        device = batch * per_sequence * again + optimizer[str(stepped)]
        launching = host[str(compiled)] * again
        step = max(device, launching) + 0.05 * min(device, launching)
        places = {name: AXES[name].index(value) for name, value in zip(names, cell, strict=True)}
        noise = sum(table[places[a], places[b]] for (a, b), table in pairs.items()) + harder * rng.normal(0, REST)
        kept = {"naive": 4.0, "naive_softmax": 3.0}.get(str(attention), 1.2) * (0.6 if narrow else 1)
        if batch * kept * (1 if checkpointing == "none" else 0.3) > room:
            continue
        written_out = 2.0 if str(attention).startswith("naive") else 0.3
        moved = 0.8 if compiled == "none" else 0.4
        expected = max(batch * ((1 if narrow else 2.5) + written_out + moved), 4 if compiled == "none" else 2)
        cells.append(cell)
        cost.append(np.log(step / batch) + noise)
        prior.append(np.log(expected / batch) if has_prior else 0.0)
        seconds.append(SETUP_SECONDS + COMPILE_SECONDS[str(compiled)] + ITERATIONS * 0.03 * step * np.exp(noise))
    return Grid(space=Space.of(names, cells), cost=np.array(cost), prior=np.array(prior), seconds=np.array(seconds))


def search(grid: Grid, seen: Floats, rng: np.random.Generator, budget: float) -> Outcome:
    """lmsweep best."""
    found = Search(grid.space, prior=grid.prior, seconds=grid.seconds)
    left, order = set(range(len(seen))), []
    while (cell := found.choose(left)) is not None:
        left.discard(cell)
        order.append(cell)
        found.learn(cell, seen[cell])
    return ended(grid, seen, order, np.inf)


def at_random(grid: Grid, seen: Floats, rng: np.random.Generator, budget: float) -> Outcome:
    """random search"""
    return ended(grid, seen, rng.permutation(len(seen)).tolist(), budget)


def micro_batch_first(grid: Grid, seen: Floats, rng: np.random.Generator, budget: float) -> Outcome:
    """micro-batch first"""
    codes = grid.space.codes
    place = [axis.name for axis in grid.space.axes].index("batch_size")
    rest = np.delete(codes, place, axis=1)
    first = np.flatnonzero((rest == rest[0]).all(axis=1)).tolist()
    batch = codes[min(first, key=lambda cell: seen[cell]), place]
    others = [cell for cell in rng.permutation(len(seen)).tolist() if codes[cell, place] == batch and cell not in first]
    return ended(grid, seen, [*first, *others], budget)


def tpe(grid: Grid, seen: Floats, rng: np.random.Generator, budget: float) -> Outcome:
    """Optuna's TPE"""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=int(rng.integers(2**31)), multivariate=True)
    study = optuna.create_study(sampler=sampler)
    spaces = {axis.name: _distribution(axis) for axis in grid.space.axes}
    known = {tuple(code): cell for cell, code in enumerate(grid.space.codes.tolist())}
    order: list[int] = []
    for _ in range(3 * len(seen)):
        if grid.seconds[order].sum() > budget:
            break
        trial = study.ask(spaces)
        code = tuple(axis.values.index(trial.params[axis.name]) for axis in grid.space.axes)
        if code not in known:  # does not fit: its price is only that it was asked
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        cell = known[code]
        if cell not in order:  # a cell that was measured costs nothing
            order.append(cell)
        study.tell(trial, seen[cell])
    return ended(grid, seen, order, budget)


def _distribution(axis: Axis) -> object:
    import optuna

    return optuna.distributions.CategoricalDistribution(axis.values)  # type: ignore[arg-type]


def ended(grid: Grid, seen: Floats, order: list[int], budget: float) -> Outcome:
    """Return the outcome of measuring cells in this order until the budget, in seconds, is spent."""
    taken = grid.seconds[order].cumsum()
    within = order[: max(1, int((taken <= budget).sum()))]
    answer = min(within, key=lambda cell: seen[cell])
    return Outcome(
        trials=len(within),
        share=float(grid.seconds[within].sum() / grid.seconds.sum()),
        behind=float(np.exp(grid.cost[answer] - grid.cost.min()) - 1),
    )


Way = Callable[[Grid, Floats, np.random.Generator, float], Outcome]


def race(
    seed: int, *, others: tuple[Way, ...] = (), draw: Callable[[np.random.Generator], Grid] = made_up
) -> list[Outcome]:
    """Return the outcome of the search, then of each other way with its device time and with SHARE of the grid's."""
    rng = np.random.default_rng(seed)
    grid = draw(rng)
    seen = grid.cost + rng.normal(0, BETWEEN_PROCESSES, len(grid.cost))
    whole = float(grid.seconds.sum())
    first = search(grid, seen, rng, np.inf)
    return [first, *(way(grid, seen, rng, share * whole) for way in others for share in (first.share, SHARE))]


def stored(location: str) -> Callable[[np.random.Generator], Grid]:
    """Return a function that draws the grid of a store: the job with most cells, each cost within its interval."""
    return partial(_draw_stored, *_read_stored(location))


def _read_stored(location: str) -> tuple[Space, Floats, Floats, Floats, Floats]:
    from collections import defaultdict

    from lmsweep.analysis import load
    from lmsweep.analysis.best.answer import JOB, axes_of, value_of
    from lmsweep.analysis.best.cells import Cell, cells_of
    from lmsweep.analysis.best.goal import parse_aim
    from lmsweep.orchestrator.planning.time_model import NOMINAL, datasheet_of, iterations_seconds, step_seconds
    from lmsweep.trials.spec.workloads import workloads

    aim = parse_aim("tokens/s", [], [])
    jobs: dict[tuple[object, ...], list[Cell]] = defaultdict(list)
    for cell in cells_of(load(location)):
        if cell.cost(aim):
            jobs[tuple(value_of(cell, name) for name in JOB)].append(cell)
    cells = max(jobs.values(), key=len)
    names = axes_of(cells)
    devices = [datasheet_of(cell.environment) or NOMINAL[cell.config.device_type] for cell in cells]
    pairs = list(zip(cells, devices, strict=True))
    costs = [cost for cell in cells if (cost := cell.cost(aim))]
    return (
        Space.of(names, [[value_of(cell, name) for name in names] for cell in cells]),
        np.log([cost.median for cost in costs]),
        np.array([cell.error(aim) for cell in cells]),
        np.log([step_seconds(cell.config, device) / cell.tokens for cell, device in pairs]),
        np.array([1.0 + iterations_seconds(cell.config, workloads()["timing"], device) for cell, device in pairs]),
    )


def _draw_stored(
    space: Space, cost: Floats, error: Floats, prior: Floats, seconds: Floats, rng: np.random.Generator
) -> Grid:
    return Grid(space=space, cost=cost + rng.normal(0, error), prior=prior, seconds=seconds)


def rows(draws: int, others: tuple[Way, ...], draw: Callable[[np.random.Generator], Grid]) -> Iterator[str]:
    """Run all draws, and return the lines of the table."""
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(partial(race, others=others, draw=draw), range(draws), chunksize=4))
    budgets = ["its own stop", *["the same device time", f"{SHARE:.0%} of the grid"] * len(others)]
    ways = [search, *(way for way in others for _ in range(2))]
    yield "| method | device time | trials | of the grid's device time, mean (largest) | right | worst |"
    yield "|---|---|---|---|---|---|"
    for way, budget, outcomes in zip(ways, budgets, zip(*found, strict=True), strict=True):
        trials = np.mean([one.trials for one in outcomes])
        shares = [one.share for one in outcomes]
        right = np.mean([one.behind <= CLOSE for one in outcomes])
        worst = max(one.behind for one in outcomes)
        name = (way.__doc__ or "").strip().rstrip(".")
        yield (
            f"| {name} | {budget} | {trials:.0f} | {np.mean(shares):.1%} ({max(shares):.1%}) | {right:.1%} "
            f"| {worst:.0%} slower |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--optuna", action="store_true", help="also Optuna's TPE, which must be installed")
    parser.add_argument("--store", help="draw from the largest grid in this store")
    parser.add_argument("--harder", type=float, default=1.0, help="factor of the interactions and the rests")
    parser.add_argument("--no-prior", action="store_true", help="search without a time model")
    given = parser.parse_args()
    others: tuple[Way, ...] = (at_random, micro_batch_first, *((tpe,) if given.optuna else ()))
    simulated = partial(made_up, harder=given.harder, has_prior=not given.no_prior)
    draw = stored(given.store) if given.store else simulated
    for line in rows(given.draws, others, draw):
        print(line, flush=True)


if __name__ == "__main__":
    main()
