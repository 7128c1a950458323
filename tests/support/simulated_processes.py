"""Processes whose true times are known: how often verdicts on them, and the intervals they rest on, are right.

A cell has a true time; the median that a process measures is that time multiplied by exp(variation x noise).
Families of equal cells show false verdicts, a family with one faster cell shows power.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from lmsweep.trials.statistics.mean_ratio import mean_ratio
from lmsweep.trials.statistics.significance import differences, direction, holm
from lmsweep.trials.statistics.variation import BETWEEN_MACHINES, PRIORS, Floats, Kind, Repeats, centre, reach

MEASURED: dict[Kind, float] = {"device": 0.0013, "device_capped": 0.0049, "wall": 0.0035}
"""Standard deviation between processes, from the repeated cells of the shipped stores (docs/comparing.md)."""

Noise = Literal["normal", "t of 3", "bimodal", "by a factor of 2", "lognormal"]
"""Of processes: of cells whose standard deviations differ by a factor of 2, or lognormally by so much; a fifth slow."""

DIFFERENT, SAME = 0.01, 0.02
WITHIN = 0.0005
"""Standard error of the median of a process from its samples."""


class Rates(NamedTuple):
    """Shares of families or of cells."""

    false: float
    """Families in which an equal cell is called slower or faster."""
    found: float
    """Families in which the one faster cell is called so."""
    same: float
    """Equal cells that are called the same."""
    covered: float
    """Intervals of a ratio that hold the truth."""
    half: float
    """Median of half their widths."""
    widened: float
    """Families whose scatter widens the prior by a quarter or more, which `compare` says."""


def axes_of(cells: int) -> np.ndarray:
    """Return the values of the axes of a table with 24 or 100 cells."""
    sizes = {24: (3, 2, 2, 2), 100: (5, 5, 4)}[cells]
    return np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1).reshape(cells, len(sizes))


def rates(
    kind: Kind,
    processes: int,
    *,
    cells: int = 24,
    times: float = 1.0,
    noise: Noise = "normal",
    faster: float = 0.0,
    families: int = 300,
) -> Rates:
    """Simulate families of cells. processes: on each side; times: the variation, in those of MEASURED; faster: by how
    much one cell is."""
    random, axes, totals = np.random.default_rng(1), axes_of(cells), np.zeros(len(Rates._fields))
    truth = np.zeros(cells)
    truth[0] = np.log1p(faster)
    equal = truth == 0
    for _ in range(families):
        each = times * MEASURED[kind] * _spread_of_cells(random, noise, cells)
        sides = [
            true[:, None] + each[:, None] * _draw(random, noise)((cells, processes))
            for true in (np.zeros(cells), -truth)
        ]
        sides = [side + WITHIN * random.standard_normal(side.shape) for side in sides]
        squares = np.stack([((side - side.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) for side in sides], axis=1)
        known = PRIORS[kind].updated(float(squares.sum()), 2.0 * cells * (processes - 1))
        number, within = (np.full((cells, 2), one) for one in (float(processes), WITHIN if processes == 1 else 0.0))
        found = differences(
            centre(sides[1]) - centre(sides[0]),
            Repeats(number, squares, within),
            np.full(cells, known.scale),
            np.full(cells, known.freedom),
            np.full(cells, SAME),
            axes,
        )
        verdicts = direction(found.ratio, holm(found.p), holm(found.p_same), np.full(cells, DIFFERENT))
        covered = (found.low <= np.exp(-truth)) & (np.exp(-truth) <= found.high)
        totals += (
            (np.abs(verdicts[equal]) == 1).any(),
            verdicts[0] == -1,
            (verdicts[equal] == 0).mean(),
            covered.mean(),
            np.median(found.half),
            found.widened.max() >= 1.25,
        )
    return Rates(*(totals / families).tolist())


def _spread_of_cells(random: np.random.Generator, noise: Noise, cells: int) -> Floats:
    if noise == "by a factor of 2":
        return np.where(random.random(cells) < 0.5, 2**0.5, 2**-0.5)
    return np.exp(np.log(2) * random.standard_normal(cells)) if noise == "lognormal" else np.ones(cells)


def _draw(random: np.random.Generator, noise: Noise) -> Callable[[tuple[int, int]], Floats]:
    """Noise of unit variance."""
    if noise == "t of 3":
        return lambda shape: random.standard_t(3, shape) / 3**0.5
    if noise == "bimodal":
        return lambda shape: np.where(random.random(shape) < 0.2, 2.0, -0.5)
    return lambda shape: random.standard_normal(shape)


def mean_over_machines(
    *, machines: float, spread: float = 0.01, cells: int = 24, families: int = 2000
) -> tuple[float, float]:
    """Return how often the interval of the geometric mean over two machines' cells covers the truth, and half its
    width. machines: standard deviation of a machine in device time; spread: of the cells' true gains."""
    random, covered, width = np.random.default_rng(2), 0, 0.0
    error = 2**0.5 * MEASURED["device"]
    prior = PRIORS["device"]
    half = 2**0.5 * prior.scale * float(reach(np.array(prior.freedom)))
    for _ in range(families):
        true = spread * random.standard_normal(cells)
        shared = machines * 2**0.5 * random.standard_normal()
        measured = true + shared + error * random.standard_normal(cells)
        mean = mean_ratio(measured, np.full(cells, half), 2**0.5 * BETWEEN_MACHINES["device"])
        covered += mean.low <= np.exp(true.mean()) <= mean.high
        width += np.log(mean.high / mean.low) / 2
    return covered / families, width / families
