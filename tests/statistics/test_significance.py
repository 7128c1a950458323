"""Verdicts on simulated processes: how often they are wrong, and the intervals that they rest on."""

import numpy as np
import pytest

from lmsweep.trials.statistics.mean_ratio import mean_ratio
from lmsweep.trials.statistics.median_interval import ratio_interval
from lmsweep.trials.statistics.pooling import pool_statistics
from lmsweep.trials.statistics.sample_stats import describe
from lmsweep.trials.statistics.significance import direction, holm
from lmsweep.trials.statistics.variation import PRIORS, Kind, centre, moderated
from tests.support.simulated_processes import Noise, mean_over_machines, rates


@pytest.mark.parametrize(("cells", "processes"), [(24, 1), (24, 3), (100, 2)])
def test_equal_cells_at_the_measured_variation_are_called_different_in_one_family_of_a_hundred(
    cells: int, processes: int
) -> None:
    found = rates("device", processes, cells=cells)
    assert found.false <= 0.01 and found.same >= 0.99
    assert found.covered >= 0.94 and found.half <= 0.007
    capped = rates("device_capped", processes, cells=cells)
    assert capped.false <= 0.015 and capped.covered >= 0.94


@pytest.mark.parametrize("kind", ["device", pytest.param("device_capped", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("times", "noise"), [(3.0, "normal"), (1.0, "t of 3"), (1.0, "bimodal"), (1.0, "by a factor of 2")]
)
def test_where_processes_vary_otherwise_than_assumed_two_of_them_are_wrong_in_one_family_of_twenty(
    kind: Kind, times: float, noise: Noise
) -> None:
    for processes, most in ((1, 0.12), (2, 0.05), (3, 0.05)):
        found = rates(kind, processes, times=times, noise=noise, families=600)
        assert found.false <= most and found.covered >= 0.9
        assert found.widened >= 0.9 if (times, processes) == (3.0, 1) else found.widened <= 0.2


def test_a_cell_that_is_one_and_a_half_percent_faster_is_found_among_24() -> None:
    assert rates("device", 1, faster=0.015).found >= 0.75
    assert rates("device", 2, faster=0.015).found >= 0.98
    assert rates("device", 1, faster=0.03).found == 1.0


@pytest.mark.parametrize("machines", [0.0014, 0.0025])
def test_the_interval_of_a_mean_over_two_machines_holds_and_is_no_wider_than_a_buyer_needs(machines: float) -> None:
    covered, half = mean_over_machines(machines=machines)
    assert covered >= 0.92 and half <= 0.015


def test_the_interval_of_a_mean_narrows_with_every_cell_that_agrees_and_says_where_cells_differ() -> None:
    few, many = (mean_ratio(np.full(count, 0.1), np.full(count, 0.005), 0.0) for count in (3, 24))
    assert np.log(many.high / many.low) < np.log(few.high / few.low) / 2.5 and not many.differ
    assert mean_ratio(np.array([0.06, 0.10, 0.16]), np.full(3, 0.005), 0.0).differ


def test_a_cells_own_processes_count_for_more_the_more_there_are() -> None:
    few, many = (np.array([float(freedom)]) for freedom in (1, 100))
    prior = PRIORS["wall"]
    for freedom, expected in ((few, 0.0107), (many, 0.0289)):
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


@pytest.mark.parametrize("k", [2, 5])
def test_intervals_of_several_processes_cover_the_median_in_at_least_94_percent(k: int) -> None:
    rng = np.random.default_rng(5)
    rows = 2000
    series = np.exp(0.03 * rng.standard_normal((rows, k, 1)) + 0.01 * rng.standard_normal((rows, k, 10)))
    each = describe(series.ravel(), np.arange(rows * k + 1) * 10)
    pooled = pool_statistics(each, np.repeat(np.arange(rows), k), rows, np.zeros(rows * k), np.zeros(rows * k))
    assert ((pooled["low"] <= 1) & (pooled["high"] >= 1)).mean() >= 0.94
