"""Verdicts on simulated samples: how often they are wrong, and the intervals that they rest on."""

from typing import Any

import numpy as np
import pytest

from lmsweep.trials.statistics.pooling import pool_statistics
from lmsweep.trials.statistics.ratio import ratio_interval
from lmsweep.trials.statistics.sample_stats import describe
from lmsweep.trials.statistics.significance import direction, holm, p_values, ratio_of_medians


def noise(random: np.random.Generator, pairs: int, processes: int, n: int, *, rho: float, spread: float) -> Any:
    """exp(spread x AR(1) noise of variance 1): (pairs, processes, n) samples around 1."""
    fresh = random.standard_normal((pairs, processes, n))
    series = np.empty_like(fresh)
    series[..., 0] = fresh[..., 0]
    for i in range(1, n):
        series[..., i] = rho * series[..., i - 1] + np.sqrt(1 - rho**2) * fresh[..., i]
    return np.exp(spread * series)


def judged(baseline: Any, contrast: Any, *, sweep: int) -> Any:
    """The directions found where so many pairs at a time are one comparison."""
    ratio, low, high = ratio_of_medians(baseline, contrast)
    p = np.concatenate([holm(part) for part in np.split(p_values(baseline, contrast), len(ratio) // sweep)])
    return direction(ratio, low, high, p, np.full(len(ratio), 0.02))


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("n", [10, 30])
@pytest.mark.parametrize("sweep", [1, 20])
def test_equal_things_are_called_different_in_at_most_5_percent_of_cells(rho: float, n: int, sweep: int) -> None:
    random = np.random.default_rng(1)
    for spread in (0.01, 0.03, 0.1):
        sides = [noise(random, 2000, 1, n, rho=rho, spread=spread) for _ in range(2)]
        assert np.mean(np.abs(judged(*sides, sweep=sweep)) == 1) <= 0.05


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("n", [10, 30])
@pytest.mark.parametrize("sweep", [1, 20])
def test_a_planted_slowdown_of_10_percent_is_found_in_at_least_95_percent(rho: float, n: int, sweep: int) -> None:
    random = np.random.default_rng(2)
    for spread in (0.005, 0.01, 0.02):
        baseline, contrast = (noise(random, 1000, 1, n, rho=rho, spread=spread) for _ in range(2))
        assert np.mean(judged(baseline, 1.1 * contrast, sweep=sweep) == 1) >= 0.95
        assert np.mean(judged(1.1 * baseline, contrast, sweep=sweep) == -1) >= 0.95


def test_processes_that_differ_from_run_to_run_are_not_called_different() -> None:
    random = np.random.default_rng(3)
    sides = []
    for _ in range(2):
        of_process = np.exp(0.03 * random.standard_normal((300, 3, 1)))
        sides.append(of_process * noise(random, 300, 3, 10, rho=0.5, spread=0.01))
    assert np.mean(np.abs(judged(*sides, sweep=1)) == 1) <= 0.05
    first_alone = [side[:, :1] for side in sides]
    assert np.mean(np.abs(judged(*first_alone, sweep=1)) == 1) > 0.3  # one process cannot know


def test_the_interval_of_a_ratio_adds_the_distances_of_both_in_quadrature() -> None:
    one = [np.array([x]) for x in (200.0, 190.0, 220.0)]
    base = [np.array([x]) for x in (100.0, 98.0, 103.0)]
    ratio, low, high = ratio_interval(*one, *base)
    assert ratio[0] == 2.0
    below = np.sqrt(np.log(200 / 190) ** 2 + np.log(103 / 100) ** 2)
    above = np.sqrt(np.log(220 / 200) ** 2 + np.log(100 / 98) ** 2)
    assert (low[0], high[0]) == pytest.approx((2 * np.exp(-below), 2 * np.exp(above)))


def test_a_difference_is_called_where_medians_test_and_interval_all_say_so() -> None:
    cases = {
        (1.10, 1.05, 1.15, 0.01): 1,
        (1.10, 1.05, 1.15, 0.06): np.nan,  # the ranks could be chance
        (1.10, 0.99, 1.21, 0.01): np.nan,  # the interval holds 1
        (1.01, 1.005, 1.03, 0.01): np.nan,  # too little to matter, but perhaps more
        (1.01, 1.005, 1.015, 0.01): 0,
    }
    numbers = [np.array(column) for column in zip(*cases, strict=True)]
    least = np.full(len(cases), 0.02)
    np.testing.assert_array_equal(direction(*numbers, least), [*cases.values()])
    ratio, low, high, p = numbers
    np.testing.assert_array_equal(direction(1 / ratio, 1 / high, 1 / low, p, least), [-one for one in cases.values()])


def test_probabilities_are_adjusted_for_their_number_as_in_holms_paper() -> None:
    assert holm(np.array([0.01, 0.04, 0.03, 0.005, np.nan])) == pytest.approx(
        [0.03, 0.06, 0.06, 0.02, np.nan], nan_ok=True
    )


@pytest.mark.parametrize("k", [2, 3, 5])
def test_intervals_of_several_processes_cover_the_median_in_at_least_94_percent(k: int) -> None:
    rng = np.random.default_rng(5)
    rows = 2000
    series = np.exp(0.03 * rng.standard_normal((rows, k, 1)) + 0.01 * rng.standard_normal((rows, k, 10)))
    each = describe(series.ravel(), np.arange(rows * k + 1) * 10)
    pooled = pool_statistics(each, np.repeat(np.arange(rows), k), rows)
    assert ((pooled["low"] <= 1) & (pooled["high"] >= 1)).mean() >= 0.94
