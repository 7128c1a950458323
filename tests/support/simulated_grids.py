"""Grids whose every cell is known, to search for the best one.

Each is a made-up training step: the device computes, moves bytes and waits for the host, in amounts drawn at random;
attention, compilation, checkpointing, precision and the optimizer change them. On top come interactions of each pair of
axes (3 %), what remains of a cell (1.5 %) and the variation between processes (1 %), as in the reference sets. Cells
that do not fit are left out, as the plan leaves them out. A trial takes 3 s, the time of its compiler, and 60
iterations. The constants of the search were chosen with seeds below TEST_SEEDS; what is reported begins there.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmsweep.orchestrator.features.best.cells.cells import Processes
from lmsweep.orchestrator.features.best.searching.beliefs import BETTER_MARGIN
from lmsweep.orchestrator.features.best.searching.search import MOST_PROCESSES, Search
from lmsweep.orchestrator.features.best.standing import RIGHT_MARGIN
from lmsweep.orchestrator.features.best.surrogate import Space
from lmsweep.trials.statistics.median_interval import Floats
from lmsweep.trials.statistics.variation import BUSY, WAITS, Kind

AXES: dict[str, tuple[object, ...]] = {
    "batch_size": (1, 2, 4, 8, 16, 32),
    "attention": ("naive", "naive_softmax", "sdpa", "sdpa_flash", "sdpa_cudnn"),
    "compile": ("none", "block", "model"),
    "checkpointing": ("none", "block"),
    "precision": ("tf32", "bf16"),
    "optimizer": ("adamw_fused", "adamw_foreach"),
}
BETWEEN_PROCESSES = 0.01
"""Standard deviation between processes; best_reliability.py draws others, and lets the search repeat."""
MEASURED: dict[Kind, float] = {"wall": 0.0038, "wall_waits": 0.026, "host": 0.1}
"""That of the repeated cells of the shipped stores (docs/comparing.md)."""
INTERACTION, REST = 0.03, 0.015
"""Standard deviations of the logarithm."""
LAYERS, ITERATIONS, START_SECONDS = 24, 60, 3.0
COMPILE_SECONDS = {"none": 0.0, "block": 15.0, "model": 50.0}
SHARE = 0.25
"""Share of the grid's device time that an answer may take."""
TEST_SEEDS = 1_000_000
"""The first seed of a reported draw; the constants of the search were chosen with smaller ones."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid whose costs are all known. All arrays have one value per cell."""

    space: Space
    cost: Floats
    """Logarithm of the seconds per token."""
    prior: Floats
    """What a time model expects of it."""
    seconds: Floats
    """Device time of the cell's trial."""
    expected: Floats
    """What a plan expects of `seconds`."""
    failed: NDArray[np.bool_]
    """Whether the cell's trial fails; its cost is then far above all others."""
    kinds: tuple[Kind, ...] = ()
    """How the cells' times vary between processes; empty where no draw asks."""


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
    names, cells, cost, prior, seconds, kinds = list(AXES), [], [], [], [], list[Kind]()
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
        kinds.append("wall" if device > BUSY * step else "wall_waits" if device > WAITS * step else "host")
        cost.append(np.log(step / batch) + noise)
        prior.append(np.log(expected / batch) if has_prior else 0.0)
        seconds.append(START_SECONDS + COMPILE_SECONDS[str(compiled)] + ITERATIONS * 0.03 * step * np.exp(noise))
    return Grid(
        space=Space.of(names, cells),
        cost=np.array(cost),
        prior=np.array(prior),
        seconds=np.array(seconds),
        expected=np.array(seconds),
        failed=np.zeros(len(cells), dtype=bool),
        kinds=tuple(kinds),
    )


def search(grid: Grid, seen: Floats, rng: np.random.Generator, budget: float) -> list[int]:
    found = Search(grid.space, prior=grid.prior, seconds=grid.expected)
    left, order = set(range(len(seen))), []
    while (cell := found.choose(left)) is not None:
        left.discard(cell)
        order.append(cell)
        measured = Processes(logs=(float(seen[cell]),), within=0.0, kinds=("wall",), device_name="")
        found.learn(cell, None if grid.failed[cell] else measured)
    return order


def ended(grid: Grid, seen: Floats, order: Sequence[int], budget: float) -> Outcome:
    """Return the outcome of measuring cells in this order until the budget, in seconds, is spent."""
    taken = grid.seconds[[*order]].cumsum()
    within = order[: max(1, int((taken <= budget).sum()))]
    answer = min(within, key=lambda cell: seen[cell])
    return Outcome(
        trials=len(within),
        share=float(grid.seconds[[*within]].sum() / grid.seconds.sum()),
        behind=float(np.exp(grid.cost[answer] - grid.cost.min()) - 1),
    )


def searched(seed: int) -> Outcome:
    """Return how the search ends on a grid that is drawn."""
    rng = np.random.default_rng(seed)
    grid = made_up(rng)
    seen = grid.cost + rng.normal(0, BETWEEN_PROCESSES, len(grid.cost))
    return ended(grid, seen, search(grid, seen, rng, np.inf), np.inf)


Draw = Callable[[np.random.Generator], Grid]


def simulate(seed: int, draw: Draw, noise: float | None, kind: Kind | None) -> dict[str, Any]:
    """Return what one search says, and what is true. noise: of all cells; None: MEASURED of the kind of each. kind: of
    all cells; None: each has its own."""
    rng = np.random.default_rng(seed)
    grid = draw(rng)
    count = len(grid.cost)
    kinds = grid.kinds if kind is None else (kind,) * count
    deviations = np.array([MEASURED[one] for one in kinds]) if noise is None else noise
    seen = grid.cost + deviations * rng.normal(0, 1, (MOST_PROCESSES, count))
    cells = np.tile(np.arange(count), MOST_PROCESSES)
    found = Search(grid.space, prior=grid.prior, seconds=grid.expected, cells=cells)
    left, order = set(range(len(cells))), []
    while (position := found.choose(left)) is not None:
        left.discard(position)
        order.append(position % count)
        value = float(seen[position // count, position % count])
        of = (kinds[position % count],)
        found.learn(position % count, Processes(logs=(value,), within=0.0, kinds=of, device_name=""))
    known = np.array(found.beliefs.cells)
    judged = found.beliefs.standing
    leader = int(known[judged.leader])
    true = grid.cost - grid.cost[leader]
    nearest = np.argsort(judged.ahead)[1:6]
    chance, within, ahead = judged.chance(), judged.interval_reach * judged.error, true[known]
    off = abs(judged.value - grid.cost[leader])
    unseen = sorted(found.left)
    return {
        "noise": noise, "seed": seed,
        "behind": float(-true.min()), "trials": len(order), "cells": len(known),
        "share": float(grid.seconds[order].sum() / grid.seconds.sum()),
        "wrong": judged.wrong, "repeated": len(found.results.measured[leader].logs),
        "is_wrong": bool(true[known].min() < -np.log1p(RIGHT_MARGIN)),
        "doubt": found.doubt(), "is_left": bool(unseen and true[unseen].min() < -np.log1p(BETTER_MARGIN)),
        "covers": bool(off <= judged.interval_reach * judged.value_error),
        "pairs": [
            (float(chance[one]), bool(ahead[one] > 0), bool(abs(judged.ahead[one] - ahead[one]) <= within[one]))
            for one in nearest
        ],
    }  # fmt: skip
