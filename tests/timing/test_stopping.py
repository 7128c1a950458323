"""How many iterations are enough: the rules on series whose answers are known."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from lmsweep.trials.statistics.median_interval import count_outliers, intervals, relative_half_width
from lmsweep.trials.statistics.trend import has_levels, have_levels, have_trend, is_drifting
from lmsweep.trials.timing import stopping
from tests.support.simulated_steps import noise, slow_runs

GENEROUS = stopping.Limit(iterations=1000, seconds=60.0)


def to_and_fro(n: int, spacing: float, median: float = 1.0) -> list[float]:
    """n values that are `spacing` apart, in an order in which neighbours do not resemble each other."""
    ordered = [median + spacing * (rank - (n - 1) / 2) for rank in range(n)]
    pairs = zip(ordered[: (n + 1) // 2], reversed(ordered), strict=False)
    return [value for pair in pairs for value in pair][:n]


# How often


@pytest.mark.parametrize(
    ("steps", "enough_at", "most", "taken", "enough"),
    [
        (7, 0, stopping.Limit(iterations=1, seconds=0), 7, True),  # a number is that many, whatever they show
        (0, 99, GENEROUS, 0, True),
        ("auto", 12, GENEROUS, 12, True),
        ("auto", 99, stopping.Limit(iterations=50, seconds=60), 50, False),
        ("auto", 5, stopping.Limit(iterations=5, seconds=60), 5, True),  # what is enough at the limit is enough
        ("auto", 99, stopping.Limit(iterations=999, seconds=0), 1, False),
    ],
)
def test_auto_continues_until_it_is_enough_or_at_its_limit(steps, enough_at, most, taken, enough):
    count = iter(range(10_000)).__next__
    assert stopping.repeat(count, steps, lambda seen: len(seen) == enough_at, most) == ([*range(taken)], enough)


def test_no_iteration_begins_after_the_seconds_that_it_may_take_but_one_is_taken():
    def slow() -> None:
        time.sleep(0.05)

    taken, enough = stopping.repeat(slow, 100, lambda taken: True, GENEROUS, 0.12)
    assert (1 <= len(taken) <= 3, enough) == (True, False)
    assert stopping.repeat(slow, 100, lambda taken: True, GENEROUS, 1e-9) == ([None], False)
    assert stopping.repeat(slow, 0, lambda taken: True, GENEROUS, 1e-9) == ([], True)
    assert stopping.repeat(slow, 1, lambda taken: True, GENEROUS, 1e-9) == ([None], True), "as many as were asked for"
    assert stopping.repeat(slow, "auto", lambda taken: False, GENEROUS, 1e-9) == ([None], False)
    late = stopping.Limit(iterations=3, seconds=0)
    assert len(stopping.repeat(slow, "auto", lambda taken: False, late, 60)[0]) == 3, "in place of the limit's seconds"


# When a warm-up is steady


@pytest.mark.parametrize(
    ("times", "steady"),
    [
        ([1.0] * 10, True),
        ([1.0] * 5 + [1.019] * 5, True),
        ([1.0] * 5 + [1.021] * 5, False),
        ([1.0] * 5 + [0.979] * 5, False),
        ([9.0, 5.0, 3.0, 2.0, 1.5] + [1.0] * 10, True),  # the last two windows count
        ([1.0] * 10 + [1.1] * 5, False),
        ([1.0, 1.0, 100.0, 1.0, 1.0] + [1.0] * 5, True),  # one outlier
    ],
)
def test_the_last_two_windows_of_five_agree_where_a_warm_up_is_steady(times: list[float], steady: bool):
    assert stopping.is_steady(times, [4] * (len(times) + 1)) == steady


def test_fewer_than_two_windows_are_not_steady_and_windows_do_not_overlap():
    answers = [stopping.is_steady([1.0] * n, [4] * (n + 1)) for n in range(21)]
    assert [n for n, steady in enumerate(answers) if steady] == [10, 15, 20]


@pytest.mark.parametrize("when", range(15))
def test_a_compile_or_an_allocation_within_the_two_windows_is_not_steady(when: int):
    counts = [0] * (when + 1) + [1] * (15 - when)  # it happens in iteration `when`, counted from 0
    assert stopping.is_steady([1.0] * 15, counts) == (when < 5)


# When a median is known well enough


@pytest.mark.parametrize("device_type", ["cuda", "cpu", "mps"])
def test_the_interval_must_be_as_narrow_as_the_device_allows(device_type: str):
    spacing = stopping.NARROW[device_type] / relative_half_width(to_and_fro(100, 1e-6)) * 1e-6
    assert stopping.is_narrow(to_and_fro(100, 0.99 * spacing), device_type)
    assert not stopping.is_narrow(to_and_fro(100, 1.01 * spacing), device_type)
    assert stopping.is_narrow(to_and_fro(100, 99 * spacing, median=100.0), device_type)


def test_the_same_samples_in_order_are_a_drift_and_tell_less():
    series = to_and_fro(100, 0.0008)
    assert stopping.is_narrow(series, "cuda") and not stopping.is_narrow(sorted(series), "cuda")


@pytest.mark.parametrize(("elapsed", "fewest"), [(0.0, stopping.FEWEST), (stopping.SLOW, stopping.FEWEST_OF_SLOW)])
def test_samples_are_a_hundred_or_thirty_slow_ones_at_least_and_every_tenth_is_looked_at(elapsed, fewest):
    answers = [stopping.is_narrow([1.0] * n, "cuda", elapsed=elapsed) for n in range(1, fewest + 31)]
    found = [n for n, narrow in enumerate(answers, start=1) if narrow]
    assert found == [fewest, fewest + 10, fewest + 20, fewest + 30]


def alike(rho: float, *, rows: int, n: int) -> np.ndarray:
    return noise(np.random.default_rng(32), rho=rho, spread=0.03, rows=rows, n=n)


@pytest.mark.parametrize(("rho", "n", "least", "most"), [(0.0, 10, 0, 0.05), (0.9, 10, 0.5, 1), (0.0, 25, 0, 0.01)])
def test_a_given_number_of_iterations_that_are_too_alike_is_worth_too_little(
    rho: float, n: int, least: float, most: float
):
    share = np.mean([stopping.is_too_correlated(series) for series in alike(rho, rows=400, n=n)])
    assert least <= share <= most


# Whether the pace changes: simulated, the figures are in docs/lab/2026-11-27-tables-of-the-pages.md

PACES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "even": lambda i, warm: np.ones(len(i)),
    "10 % slower from the 40th measured on": lambda i, warm: 1 + 0.1 * (i >= warm + 40),
    "10 % drift over 200": lambda i, warm: 1 + 0.1 * i / 200,
    "30 % of warm-up with a time constant of 100": lambda i, warm: 1 + 0.3 * np.exp(-i / 100),
}


def run_auto(pace: Callable[[np.ndarray, int], np.ndarray], noise: np.ndarray) -> bool:
    """Whether a series of this pace is flagged by `auto`, as lmsweep.trials.bench.iterations does it."""
    i = np.arange(len(noise))
    early = iter(pace(i, len(i)) * noise)
    warmup, steady = stopping.repeat(
        lambda: next(early),
        "auto",
        lambda taken: stopping.is_steady(taken, [0] * (len(taken) + 1)),
        stopping.WARMUP_LIMIT,
    )
    late = iter((pace(i, len(warmup)) * noise)[len(warmup) :])
    measured, _ = stopping.repeat(
        lambda: next(late), "auto", lambda taken: stopping.is_narrow(taken, "cuda"), stopping.MEASURE_LIMIT
    )
    return not steady or is_drifting(measured)


@pytest.mark.parametrize("pace", ["even", *(pytest.param(one, marks=pytest.mark.slow) for one in [*PACES][1:])])
def test_auto_flags_a_change_of_pace_in_95_percent_and_even_noise_in_at_most_5(pace: str):
    flagged = np.mean([run_auto(PACES[pace], row) for row in alike(0.0, rows=40, n=250)])
    assert flagged <= 0.05 if pace == "even" else flagged >= 0.95


@pytest.mark.parametrize(("rho", "trends", "levels"), [(0.0, 0.03, 0.01), (0.7, 0.07, 0.02), (0.9, 0.10, 0.14)])
@pytest.mark.parametrize("n", [10, 100])
def test_noise_whose_neighbours_are_alike_is_seldom_taken_for_a_trend_or_for_two_speeds(rho, trends, levels, n):
    series = alike(rho, rows=1000, n=n)
    assert have_trend(series).mean() <= trends
    assert have_levels(series).mean() <= levels


@pytest.mark.parametrize(("spread", "least"), [(0.01, 0.97), (0.03, 0.88)])
@pytest.mark.parametrize("n", [100, 200])
def test_a_median_that_slow_runs_of_fifty_steps_move_is_flagged_or_within_its_interval(n, spread, least):
    random = np.random.default_rng(32)
    series = noise(random, rho=0, spread=spread, rows=1000, n=n) * slow_runs(random, rows=1000, n=n)
    median, low, high = intervals(series)
    known = have_trend(series) | have_levels(series) | ((low <= 1) & (high >= 1))
    assert known[np.abs(median - 1) > 0.02].mean() >= least


def test_two_speeds_are_seen_in_runs_only_and_where_they_differ_by_two_percent():
    runs = np.repeat([1.0, 1.1, 1.0], 10)
    assert has_levels(runs) and not has_levels(np.resize([1.0, 1.1], 30)) and not has_levels([1.0] * 30)
    assert has_levels([1.021 if one > 1 else 1 for one in runs])
    assert not has_levels([1.019 if one > 1 else 1 for one in runs])


def test_a_trend_of_less_than_1_percent_and_one_of_fewer_than_ten_samples_are_of_no_matter():
    assert not is_drifting(np.linspace(1, 1.009, 100)) and is_drifting(np.linspace(1, 1.02, 100))
    assert not is_drifting(np.linspace(1, 2, 9)) and is_drifting(np.linspace(1, 2, 10))
    assert is_drifting(np.linspace(2, 1, 100)) and not is_drifting([1.0] * 100)


def test_an_outlier_lies_more_than_three_interquartile_ranges_beyond_the_quartiles():
    calm = [float(i) for i in range(1, 10)]  # with one above, the quartiles are 3.25 and 7.75; with one below, 1 less
    counts = [int(count_outliers([[*calm, last]])[0]) for last in (5.0, 21.2, 21.3, -11.2, -11.3)]
    assert counts == [0, 0, 1, 0, 1]
    assert list(count_outliers([[5.0] * 9 + [5.001], [5.0] * 10])) == [1, 0]
