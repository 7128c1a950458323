"""Intervals of medians over processes: every time has one, and it holds what another process measures."""

import numpy as np
import pytest

from lmsweep.analysis.data.load import load
from lmsweep.trials.statistics.pooling import pool_statistics
from lmsweep.trials.statistics.sample_stats import describe
from lmsweep.trials.statistics.variation import PRIORS, reach
from tests.support.repeated_cells import repeated, traced
from tests.support.simulated_steps import unseen


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


def test_the_interval_of_one_process_holds_the_next_in_94_to_99_percent_of_the_cells_that_shipped_stores_repeat() -> (
    None
):
    cells = repeated()
    assert 0.94 <= cells["covered"].sum() / cells["pairs"].sum() <= 0.99
    kinds = cells.groupby("kind")[["covered", "pairs"]].sum()
    assert kinds["pairs"].sum() > 2000 and (kinds["covered"] >= 0.94 * kinds["pairs"]).all(), kinds


def test_the_traced_steps_of_a_process_differ_by_one_percent_at_most_unless_the_gpu_is_at_its_power_limit() -> None:
    apart = traced().groupby("variation_kind")["apart"]
    assert (apart.median()[["device", "phase"]] <= 0.002).all()
    assert apart.max()["device"] <= 0.011 and 0.05 <= apart.max()["device_capped"] <= 0.082


@pytest.mark.parametrize("store", ["h100-devices", "h200-devices", "h100-best-grid", "h200-end-to-end"])
def test_every_step_of_a_shipped_store_has_an_interval_of_its_main_times(store: str) -> None:
    rows = load(store)
    steps = rows[(rows["phase"] == "step") & rows["metric"].isin(["time", "device_time"]) & rows["median"].notna()]
    assert len(steps) >= 24 and (steps["low"] < steps["median"]).all() and (steps["median"] < steps["high"]).all()


@pytest.mark.parametrize("spread", [0.01, 0.03])
def test_two_processes_show_slow_runs_of_random_length_that_one_process_cannot_see(spread: float) -> None:
    one, two = (unseen(processes, spread=spread) for processes in (1, 2))
    assert one.wholly > 0.08, "no test sees that a process had not a single fast step"
    assert 0.1 < one.silent <= 0.25 and two.silent <= 0.1
