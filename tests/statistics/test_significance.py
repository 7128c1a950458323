"""Verdicts on simulated processes: how often they are wrong, and the intervals that they rest on."""

import numpy as np
import pytest

from lmsweep.analysis.data.load import load
from lmsweep.trials.statistics.mean_ratio import mean_ratio
from lmsweep.trials.statistics.median_interval import ratio_interval
from lmsweep.trials.statistics.pooling import pool_statistics
from lmsweep.trials.statistics.sample_stats import describe
from lmsweep.trials.statistics.significance import direction, holm
from lmsweep.trials.statistics.variation import PRIORS, Kind, centre, moderated, reach
from tests.support.repeated_cells import repeated, traced
from tests.support.simulated_processes import Noise, mean_over_machines, rates
from tests.support.simulated_steps import unseen


@pytest.mark.parametrize(("cells", "processes"), [(24, 1), (100, 2)])
def test_equal_cells_are_called_different_in_one_family_of_a_hundred(cells: int, processes: int) -> None:
    found = rates("device", processes, cells=cells)
    assert found.false <= 0.01 and found.same >= 0.99
    assert found.covered >= 0.94 and found.half <= 0.007
    capped = rates("device_capped", processes, cells=cells)
    assert capped.false <= 0.015 and capped.covered >= 0.94


@pytest.mark.parametrize("kind", ["device", pytest.param("device_capped", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("times", "noise"),
    [
        (3.0, "normal"),
        *(pytest.param(1.0, other, marks=pytest.mark.slow) for other in ("t of 3", "bimodal", "by a factor of 2")),
    ],
)
def test_where_processes_vary_otherwise_than_assumed_two_of_them_are_wrong_in_one_family_of_twenty(
    kind: Kind, times: float, noise: Noise
) -> None:
    for processes, most in ((1, 0.12), (2, 0.05), (3, 0.05)):
        found = rates(kind, processes, times=times, noise=noise, families=1000)
        assert found.false <= most and found.covered >= 0.9
        assert found.widened >= 0.9 if (times, processes) == (3.0, 1) else found.widened <= 0.2


def test_a_cell_that_is_one_and_a_half_percent_faster_is_found_among_24() -> None:
    assert rates("device", 1, faster=0.015, families=100).found >= 0.75
    assert rates("device", 2, faster=0.015, families=100).found >= 0.98
    assert rates("device", 1, faster=0.03, families=100).found == 1.0


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
    expected = pytest.approx([0.03, 0.06, 0.06, 0.02, np.nan], nan_ok=True)
    assert holm(np.array([0.01, 0.04, 0.03, 0.005, np.nan])) == expected


@pytest.mark.parametrize("k", [2, 5])
def test_intervals_of_several_processes_cover_the_median_in_at_least_94_percent(k: int) -> None:
    rng = np.random.default_rng(5)
    rows = 2000
    series = np.exp(0.03 * rng.standard_normal((rows, k, 1)) + 0.01 * rng.standard_normal((rows, k, 10)))
    each = describe(series.ravel(), np.arange(rows * k + 1) * 10)
    pooled = pool_statistics(each, np.repeat(np.arange(rows), k), rows, np.zeros(rows * k), np.zeros(rows * k))
    assert ((pooled["low"] <= 1) & (pooled["high"] >= 1)).mean() >= 0.94


def half_of(*samples: float) -> tuple[float, float]:
    """The distances of the ends of the interval from the median of one process's device times, on a log scale."""
    prior = PRIORS["device"]
    each = describe(np.array(samples), np.array([0, len(samples)]))
    found = pool_statistics(each, np.array([0]), 1, np.array([prior.scale]), np.array([prior.freedom]))
    return float(np.log(found["median"] / found["low"])[0]), float(np.log(found["high"] / found["median"])[0])


def test_two_traced_steps_have_an_interval_from_other_processes_and_from_their_own_spread() -> None:
    prior = PRIORS["device"]
    others = float(reach(np.array(prior.freedom))) * prior.scale
    assert half_of(13e-3) == pytest.approx((others, others)), "one sample says nothing of its own spread"
    assert half_of(13e-3, 13e-3) == pytest.approx((others, others))
    calm, wild = half_of(13e-3, 13.005e-3), half_of(13e-3, 13.5e-3)
    assert calm[0] == pytest.approx(calm[1]) and others < calm[0] < 1.1 * others
    assert wild[0] == pytest.approx(1.96 * 0.5 / 2**0.5 / 13.25, rel=0.02), "they count as one: they vary as it does"


def test_a_count_that_repeats_to_the_last_digit_has_an_interval_of_no_width_and_a_time_of_zero_has_none() -> None:
    each = describe(np.array([7.0, 0.0, 0.0]), np.arange(4))
    scale, freedom = np.array([0.0, 0.0, 0.2]), np.array([0.0, 0.0, 3.0])
    found = pool_statistics(each, np.arange(3), 3, scale, freedom)
    assert list(found["low"][:2]) == list(found["high"][:2]) == [7, 0]
    assert np.isnan(found["low"][2]) and np.isnan(found["high"][2])


@pytest.mark.slow  # reads every store that ships
def test_the_interval_of_one_process_holds_the_next_in_94_to_99_percent_of_cells_that_stores_repeat() -> None:
    cells = repeated()
    assert 0.94 <= cells["covered"].sum() / cells["pairs"].sum() <= 0.99
    kinds = cells.groupby("kind")[["covered", "pairs"]].sum()
    assert kinds["pairs"].sum() > 2000 and (kinds["covered"] >= 0.94 * kinds["pairs"]).all(), kinds


@pytest.mark.slow  # reads every store that ships
def test_the_traced_steps_of_a_process_differ_by_one_percent_at_most_unless_the_gpu_is_at_its_power_limit() -> None:
    apart = traced().groupby("variation_kind")["apart"]
    assert (apart.median()[["device", "phase"]] <= 0.002).all()
    assert apart.max()["device"] <= 0.011 and 0.05 <= apart.max()["device_capped"] <= 0.082


@pytest.mark.parametrize("store", ["h200-devices", "h200-end-to-end"])
def test_every_step_of_a_shipped_store_has_an_interval_of_its_main_times(store: str) -> None:
    rows = load(store)
    steps = rows[(rows["phase"] == "step") & rows["metric"].isin(["time", "device_time"]) & rows["median"].notna()]
    assert len(steps) >= 24 and (steps["low"] < steps["median"]).all() and (steps["median"] < steps["high"]).all()


@pytest.mark.parametrize("spread", [0.01, 0.03])
def test_two_processes_show_slow_runs_of_random_length_that_one_process_cannot_see(spread: float) -> None:
    one, two = (unseen(processes, spread=spread) for processes in (1, 2))
    assert one.wholly > 0.08, "no test sees that a process had not a single fast step"
    assert 0.1 < one.silent <= 0.25 and two.silent <= 0.1
