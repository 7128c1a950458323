"""Families of grids other than `made_up` draws them, in which a search may err.

needles: one cell in a hundred is 5 to 20 % faster than its values lead to expect. three-way: interactions of each three
axes of 3 %. wrong prior: the time model of each value of each axis is wrong by a factor whose logarithm has a deviation
of 0.5. no prior: there is no time model.
"""

import itertools
from dataclasses import replace

import numpy as np

from tests.support.simulated_grids import Draw, Grid, made_up


def needles(rng: np.random.Generator) -> Grid:
    grid = made_up(rng)
    chosen = rng.random(len(grid.cost)) < 0.01
    return replace(grid, cost=grid.cost - chosen * rng.uniform(0.05, 0.2, len(grid.cost)))


def three_way(rng: np.random.Generator) -> Grid:
    grid = made_up(rng)
    axes = range(grid.space.codes.shape[1])
    sizes = [len(axis.values) for axis in grid.space.axes]
    cost = grid.cost.copy()
    for three in itertools.combinations(axes, 3):
        table = rng.normal(0, 0.03, [sizes[place] for place in three])
        cost += table[tuple(grid.space.codes[:, place] for place in three)]
    return replace(grid, cost=cost)


def wrong_prior(rng: np.random.Generator) -> Grid:
    grid = made_up(rng)
    prior = grid.prior.copy()
    for place, axis in enumerate(grid.space.axes):
        prior += rng.normal(0, 0.5, len(axis.values))[grid.space.codes[:, place]]
    return replace(grid, prior=prior)


def no_prior(rng: np.random.Generator) -> Grid:
    return made_up(rng, has_prior=False)


FAMILIES: dict[str, Draw] = {
    "as drawn": made_up,
    "needles": needles,
    "three-way": three_way,
    "wrong prior": wrong_prior,
    "no prior": no_prior,
}
