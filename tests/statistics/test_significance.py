"""Verdicts on simulated processes: how often they are wrong, and the intervals that they rest on."""

import numpy as np
import pytest

from lmsweep.trials.statistics.median_interval import ratio_interval
from lmsweep.trials.statistics.pooling import pool_statistics
from lmsweep.trials.statistics.sample_stats import describe
from lmsweep.trials.statistics.significance import direction, holm
from lmsweep.trials.statistics.variation import PRIORS, Kind, centre, moderated
from tests.support.simulated_processes import error_rates, mean_coverage


@pytest.mark.parametrize(("kind", "variation"), [("wall", 0.03), ("device", 0.005), ("device", 0.015), ("cpu", 0.03)])
def test_verdicts_on_24_cells_are_wrong_in_at_most_5_percent_and_more_processes_find_more(
    kind: Kind, variation: float
) -> None:
    rows = np.array(error_rates(kind, variation, families=150))
    processes, false, same, power, covered = rows.T
    assert (false <= 0.05).all() and (same <= 0.05).all()
    assert (np.diff(power) >= -0.02).all() and power[processes == 5] >= 0.75
    assert (covered[processes > 1] >= 0.93).all()


@pytest.mark.parametrize(("axis", "common"), [(0.05, 0.0), (0.0, 0.01), (0.0, 0.02)])
def test_a_geometric_mean_covers_these_cells_and_others_like_them(axis: float, common: float) -> None:
    these, others = mean_coverage(axis=axis, common=common, families=300)
    assert these >= 0.93 and others >= 0.9


def test_a_cells_own_processes_count_for_more_the_more_there_are() -> None:
    few, many = (np.array([float(freedom)]) for freedom in (1, 100))
    prior = PRIORS["wall"]
    for freedom, expected in ((few, 0.02), (many, 0.03)):
        deviation, total = moderated(np.array([0.03**2]), freedom, np.array([prior.scale]), np.array([prior.freedom]))
        assert deviation[0] == pytest.approx(expected, rel=0.02) and total[0] == freedom[0] + prior.freedom


def test_one_outlying_process_hardly_moves_the_centre() -> None:
    assert centre(np.array([1.0, 1.01, 0.99, 1.0, 1.5])) == pytest.approx(1.0, abs=0.01)
    assert centre(np.array([1.0, 2.0])) == 1.5


def test_the_interval_of_a_ratio_adds_the_distances_of_both_in_quadrature() -> None:
    one = [np.array([x]) for x in (200.0, 190.0, 220.0)]
    base = [np.array([x]) for x in (100.0, 98.0, 103.0)]
    ratio, low, high = ratio_interval(*one, *base)
    assert ratio[0] == 2.0
    below = np.sqrt(np.log(200 / 190) ** 2 + np.log(103 / 100) ** 2)
    above = np.sqrt(np.log(220 / 200) ** 2 + np.log(100 / 98) ** 2)
    assert (low[0], high[0]) == pytest.approx((2 * np.exp(-below), 2 * np.exp(above)))


def test_a_difference_counts_if_it_is_significant_and_large_enough() -> None:
    cases = {
        (1.10, 0.01, 1.0): 1,
        (1.10, 0.06, 1.0): np.nan,  # could be chance
        (1.01, 0.01, 0.2): np.nan,  # too little to matter, but perhaps more
        (1.01, 0.01, 0.01): 0,
    }
    ratio, p, p_same = (np.array(column) for column in zip(*cases, strict=True))
    least = np.full(len(cases), 0.02)
    np.testing.assert_array_equal(direction(ratio, p, p_same, least), [*cases.values()])
    np.testing.assert_array_equal(direction(1 / ratio, p, p_same, least), [-one for one in cases.values()])


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
    pooled = pool_statistics(each, np.repeat(np.arange(rows), k), rows, np.zeros(rows * k), np.zeros(rows * k))
    assert ((pooled["low"] <= 1) & (pooled["high"] >= 1)).mean() >= 0.94
