"""Simulates searches for the best cell on grids whose every cell is known, beside other ways to search.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.best_simulation --draws 1000    # matrices are small: threads only wait
    python -m benchmarks.best_simulation --draws 1000 --optuna      # pip install optuna
    python -m benchmarks.best_simulation --store analysis/reference/h100-devices --store ... [--pool]

tests/support/simulated_grids.py draws the grids.

`--store` draws from measured grids instead: each draw takes one job of these stores, and moves each cell within its
interval and the variation between processes. A trial then takes as long as it took. Few jobs of stores have many
cells; with `--pool`, all jobs of a store are one grid, in which the seconds per FLOP of a step are to be small.

`right` is the share of draws whose answer is at most 2 % worse than the best cell. The other ways get as much device
time as the search took, and 25 % of the grid's:

- Random search.
- Micro-batch first, the method of DeepSpeed's autotuner (deepspeed.ai/tutorials/autotuning). Its stages of ZeRO, which
  save memory for time, are here the values of checkpointing. In each stage: with everything else at the first value,
  the smallest and the largest batch that fit; of those between half the largest and the largest, at most three; then
  combinations of these batches with the other fields, chosen by a cost model after two random ones, every fifth at
  random. A later stage tunes other fields only if it trains larger batches at least as fast. On its own it ends a stage
  after five combinations without a better one, or fifty. Its cost model is XGBoost; here it is a linear one of the
  logarithm, which suits these grids.
- The tree-structured Parzen estimator of Optuna, through its library.
"""

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lmsweep.analysis import load
from lmsweep.orchestrator.features.best.cells.cell_axes import axes_of, job_of, value_of
from lmsweep.orchestrator.features.best.cells.cells import Cell, cells_of
from lmsweep.orchestrator.features.best.standing import RIGHT_MARGIN
from lmsweep.orchestrator.features.best.surrogate import Axis, Space
from lmsweep.orchestrator.planning.time_estimate import graph_seconds, iterations_seconds, step_seconds
from lmsweep.orchestrator.predicting.device_rates import DeviceRates
from lmsweep.trials.analytic.formulas import PASSES, forward_flops
from lmsweep.trials.analytic.model_operators.model_parts import model_parts
from lmsweep.trials.analytic.rates.step_time import OperatorRates, step_time
from lmsweep.trials.analytic.trial_durations import duration_of
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.spec.workloads import workloads
from lmsweep.trials.statistics.median_interval import Floats
from tests.support.measured_steps import operators_of
from tests.support.simulated_grids import (
    BETWEEN_PROCESSES,
    SHARE,
    TEST_SEEDS,
    Grid,
    Outcome,
    ended,
    made_up,
    search,
)

PATIENCE, MOST_COMBINATIONS, BATCHES, EXPLORED = 5, 50, 3, 0.2
"""Defaults of DeepSpeed's autotuner: combinations without a better one, combinations of a stage, batches of a stage;
and the share of combinations that it chooses at random."""


def at_random(grid: Grid, seen: Floats, rng: np.random.Generator, budget: float) -> list[int]:
    order: list[int] = rng.permutation(len(seen)).tolist()
    return order


def micro_batch_first(grid: Grid, seen: Floats, rng: np.random.Generator, budget: float) -> list[int]:
    """Return the order of DeepSpeed's autotuner. budget: infinite if it shall end on its own."""
    codes, names = grid.space.codes, [axis.name for axis in grid.space.axes]
    special = {name: names.index(name) for name in ("batch_size", "checkpointing") if name in names}
    others = [place for place in range(len(names)) if place not in special.values()]
    batches, stages = np.ones(len(codes)), np.zeros(len(codes), dtype=np.int64)
    if "batch_size" in special:
        place = special["batch_size"]
        batches = np.array(grid.space.axes[place].values, dtype=np.float64)[codes[:, place]]
    if "checkpointing" in special:
        stages = codes[:, special["checkpointing"]]
    order: list[int] = []
    best_batch, best_cost = 0.0, np.inf
    for stage in sorted(set(stages.tolist())):
        default = np.flatnonzero((stages == stage) & (codes[:, others] == 0).all(axis=1))
        if not len(default):
            continue
        default = default[np.argsort(batches[default])]
        kept = [cell for cell in default.tolist() if batches[cell] >= batches[default[-1]] / 2][-BATCHES:]
        tried = list(dict.fromkeys([int(default[0]), int(default[-1]), *kept]))
        fastest = min(tried, key=lambda cell: seen[cell])
        is_first, order = not order, [*order, *tried]
        if not is_first and (batches[fastest] <= best_batch or seen[fastest] > best_cost):
            continue
        best_batch, best_cost = float(batches[fastest]), float(seen[fastest])
        space = np.flatnonzero((stages == stage) & np.isin(batches, batches[kept]))
        order += _tuned(grid, seen, rng, [cell for cell in space.tolist() if cell not in tried], tried, budget)
    return order


def _tuned(
    grid: Grid, seen: Floats, rng: np.random.Generator, left: list[int], known: Sequence[int], budget: float
) -> list[int]:
    """Return cells of `left` in the order in which a cost model chooses them, after those known."""
    widths = [len(axis.values) for axis in grid.space.axes]
    features = np.concatenate([np.eye(width)[grid.space.codes[:, place]] for place, width in enumerate(widths)], axis=1)
    order: list[int] = []
    best, without = min(seen[[*known]]), 0
    while left and grid.seconds[order].sum() < budget:
        if np.isinf(budget) and (without >= PATIENCE or len(order) >= MOST_COMBINATIONS):
            break
        if len(order) < 2 or rng.random() < EXPLORED:
            cell = left[int(rng.integers(len(left)))]
        else:
            before = [*known, *order]
            normal = features[before].T @ features[before] + 0.01 * np.eye(features.shape[1])
            weights = np.linalg.solve(normal, features[before].T @ (seen[before] - seen[before].mean()))
            cell = left[int(np.argmin(features[left] @ weights))]
        left = [one for one in left if one != cell]
        order.append(cell)
        without = 0 if seen[cell] < best else without + 1
        best = min(best, seen[cell])
    return order


def tpe(grid: Grid, seen: Floats, rng: np.random.Generator, budget: float) -> list[int]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
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
        if code not in known:  # it does not fit, which costs nothing
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        cell = known[code]
        if cell not in order:  # a cell that was measured costs nothing
            order.append(cell)
        study.tell(trial, seen[cell])
    return order


def _distribution(axis: Axis) -> object:
    import optuna

    return optuna.distributions.CategoricalDistribution(axis.values)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to search."""

    name: str
    order: Callable[[Grid, Floats, np.random.Generator, float], list[int]]
    """Returns the cells in the order in which it measures them, at least until a budget in seconds is spent."""
    ends: bool
    """Whether it ends on its own; else it is looked at after the search's device time, and after SHARE."""


SEARCH = Way(name="lmsweep best", order=search, ends=True)
RANDOM = Way(name="random search", order=at_random, ends=False)
TPE = Way(name="Optuna's TPE", order=tpe, ends=False)
MICRO_BATCH = tuple(Way(name="micro-batch first", order=micro_batch_first, ends=ends) for ends in (True, False))


def race(
    seed: int, *, others: Sequence[Way] = (), draw: Callable[[np.random.Generator], Grid] = made_up
) -> list[Outcome]:
    """Return the outcome of the search, then of each other way: at its own end, or with each of two budgets."""
    rng = np.random.default_rng(seed)
    grid = draw(rng)
    seen = grid.cost + rng.normal(0, BETWEEN_PROCESSES, len(grid.cost))
    whole = float(grid.seconds.sum())
    outcomes = [ended(grid, seen, SEARCH.order(grid, seen, rng, np.inf), np.inf)]
    budgets = (outcomes[0].share * whole, SHARE * whole)
    for way in others:
        order = way.order(grid, seen, rng, np.inf if way.ends else max(budgets))
        outcomes += [ended(grid, seen, order, budget) for budget in ((np.inf,) if way.ends else budgets)]
    return outcomes


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A measured grid."""

    grid: Grid
    errors: Floats
    """Standard error of the logarithm of each cell's cost."""


def _device_seconds(config: TrialConfig, rates: OperatorRates) -> float:
    return step_time(operators_of(model_parts(config)), rates).computing


def stored_grids(location: str, *, pool: bool, clock: str = "step.time") -> list[Stored]:
    """Return the measured grids of a store: one per job and device, or with `pool` one per device.

    clock: the time that is to be small: step.time or step.device_time. Trials that failed are cells too.
    """
    modelled = _device_seconds if clock == "step.device_time" else step_seconds
    frame = load(location, pooled=False)
    times = frame[(frame["phase"] == "trial") & (frame["unit"] == "s")]
    of_attempt = (times["median"] * times["n"]).groupby([times[name] for name in (*KEY, "attempt_id")]).sum()
    ahead = times[times["metric"] == "precompile_time"]
    # Ahead of one trial the graphs of many are compiled.
    of_ahead = ahead.set_index([*KEY, "attempt_id"])["median"]
    of_attempt = of_attempt.add(of_ahead.mean() - of_ahead, fill_value=0.0)
    seconds = of_attempt.groupby(level=[*KEY]).mean().to_dict()
    jobs: dict[tuple[object, ...], list[Cell]] = defaultdict(list)
    for cell in cells_of(load(location)):
        job = () if pool else job_of(cell)
        jobs[(cell.environment_id, *job)].append(cell)
    grids = []
    for cells in jobs.values():
        if sum(clock in cell.values for cell in cells) < FEWEST:
            continue
        names = [*(("d_model", "context_length") if pool else ()), *axes_of(cells)]
        failed = np.array([clock not in cell.values for cell in cells])
        work = np.log([_flops(cell) if pool else cell.tokens for cell in cells])
        cost = np.log([np.nan if clock not in cell.values else cell.values[clock].median for cell in cells]) - work
        errors = [0.0 if clock not in cell.values else cell.values[clock].error.deviation for cell in cells]
        rates, names_of = DeviceRates(), [(cell.config, cell.environment.device_name) for cell in cells]
        pairs = [(config, rates.known(name) or rates.usual(config.device_type)) for config, name in names_of]
        expected = [
            duration_of(config, "timing").setup
            + graph_seconds(config)
            + iterations_seconds(config, workloads()["timing"], step_seconds(config, costs))
            for config, costs in pairs
        ]
        grid = Grid(
            space=Space.of(names, [[value_of(cell, name) for name in names] for cell in cells]),
            cost=np.where(failed, np.nanmax(cost) + 1, cost),
            prior=np.log([modelled(config, costs) for config, costs in pairs]) - work,
            seconds=np.array(
                [seconds.get((trial_id(one.config), one.config.mode, one.environment_id), 1.0) for one in cells]
            ),
            expected=np.array(expected),
            failed=failed,
        )
        grids.append(Stored(grid=grid, errors=np.array(errors)))
    return grids


KEY = ("trial_id", "mode", "environment_id")
FEWEST = 4
"""Cells of the smallest grid that is searched."""


def _flops(cell: Cell) -> float:
    config = cell.config
    terms = config.size.terms
    shape = {"context_length": config.context_length, "batch_size": config.batch_size}
    return PASSES[config.mode] * float(forward_flops(**terms, **shape, vocab_size=config.vocab_size))


def draw_stored(grids: Sequence[Stored], rng: np.random.Generator) -> Grid:
    """Draw one of the grids, with each cell moved by its error."""
    one = grids[int(rng.integers(len(grids)))]
    return replace(one.grid, cost=one.grid.cost + rng.normal(0, one.errors))


def rows(seeds: range, others: Sequence[Way], draw: Callable[[np.random.Generator], Grid]) -> Iterator[str]:
    """Run all draws, and yield the lines of the table."""
    with ProcessPoolExecutor() as pool:
        every = list(pool.map(partial(race, others=others, draw=draw), seeds, chunksize=4))
    budgets = ["the same device time", f"{SHARE:.0%} of the grid"]
    labels = [(way.name, words) for way in (SEARCH, *others) for words in (["its own end"] if way.ends else budgets)]
    yield "| method | device time | trials | of the grid's device time, mean (largest) | right | behind, mean (worst) |"
    yield "|---|---|---|---|---|---|"
    for (name, budget), outcomes in zip(labels, zip(*every, strict=True), strict=True):
        shares = [one.share for one in outcomes]
        behind = [one.behind for one in outcomes]
        right = np.mean([one <= RIGHT_MARGIN for one in behind])
        yield (
            f"| {name} | {budget} | {np.mean([one.trials for one in outcomes]):.0f} | {np.mean(shares):.1%} "
            f"({max(shares):.1%}) | {right:.1%} | {np.mean(behind):.1%} ({max(behind):.0%}) |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--optuna", action="store_true", help="also Optuna's TPE, which must be installed")
    parser.add_argument("--store", action="append", default=[], help="draw from the grids of this store; repeatable")
    parser.add_argument("--device-time", action="store_true", help="of stores: the device time, not the wall time")
    parser.add_argument("--pool", action="store_true", help="all jobs of a store are one grid")
    parser.add_argument("--harder", type=float, default=1.0, help="factor of the interactions and the rests")
    parser.add_argument("--no-prior", action="store_true", help="search without a time model")
    parser.add_argument("--tuning", action="store_true", help="the seeds below TEST_SEEDS, for changes of the search")
    given = parser.parse_args()
    others = (RANDOM, *MICRO_BATCH, *((TPE,) if given.optuna else ()))
    draw: Callable[[np.random.Generator], Grid]
    draw = partial(made_up, harder=given.harder, has_prior=not given.no_prior)
    if given.store:
        clock = "step.device_time" if given.device_time else "step.time"
        grids = [grid for location in given.store for grid in stored_grids(location, pool=given.pool, clock=clock)]
        sizes = ", ".join(str(len(one.errors)) for one in grids)
        print(f"{len(grids)} measured grids, of {sizes} cells\n")
        draw = partial(draw_stored, grids)
    first = 0 if given.tuning else TEST_SEEDS
    for line in rows(range(first, first + given.draws), others, draw):
        print(line, flush=True)


if __name__ == "__main__":
    main()
