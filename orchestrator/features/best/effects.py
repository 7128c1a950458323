"""Which axis matters most: the mean effect of each axis over the grid, with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import numpy as np

from lmsweep.orchestrator.features.best.standing import WITHIN
from lmsweep.orchestrator.features.best.surrogate import Indices, Space, Surrogate

MOST = 200
"""Maximum number of cells for averaging an effect; a larger grid is sampled evenly."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """How much better the best value of an axis is than its worst, as the geometric mean over the other axes."""

    axis: str
    best: object
    worst: object
    ratio: float
    """How many times better; 1 or more."""
    low: float
    high: float


def main_effects(space: Space, surrogate: Surrogate, values: Sequence[Sequence[object]]) -> list[Effect]:
    """Return the effect of each axis, the largest first.

    surrogate: fitted to costs without a prior mean. values: for each axis, those that were measured.
    """
    chosen = space.codes[np.linspace(0, len(space.codes) - 1, min(MOST, len(space.codes))).astype(np.int64)]
    found = []
    for place, axis in enumerate(space.axes):
        codes = [code for code, value in enumerate(axis.values) if value in values[place]]
        if len(codes) > 1:
            found.append(_effect(surrogate, chosen, place, axis.values, codes, axis.name))
    return sorted(found, key=lambda one: -one.ratio)


def _effect(
    surrogate: Surrogate, cells: Indices, place: int, values: Sequence[object], codes: Sequence[int], name: str
) -> Effect:
    def everywhere(code: int) -> Indices:
        changed = cells.copy()
        changed[:, place] = code
        return changed

    share = np.full(len(cells), 1 / len(cells))
    means = {code: surrogate.contrast(everywhere(code), share)[0] for code in codes}
    best, worst = min(codes, key=means.__getitem__), max(codes, key=means.__getitem__)
    both = np.concatenate([everywhere(worst), everywhere(best)])
    mean, error = surrogate.contrast(both, np.concatenate([share, -share]))
    return Effect(
        axis=name,
        best=values[best],
        worst=values[worst],
        ratio=exp(mean),
        low=exp(mean - WITHIN * error),
        high=exp(mean + WITHIN * error),
    )
