"""Statistics of ragged samples, against NumPy, SciPy and simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy import signal, stats

from lmsweep.analysis.data.sample_stats import describe, describe_samples
from lmsweep.trials.analytic.median_interval import _ranks, independent_interval, independent_worth


def described(*rows: list[float]) -> pd.DataFrame:
    values = np.array([value for row in rows for value in row], dtype=float)
    return describe(values, np.cumsum([0, *map(len, rows)]))


def ar1(*, rho: float, rows: int, n: int, seed: int) -> np.ndarray:
    """Stationary autoregressive noise of median 1, skewed as times are."""
    noise = np.random.default_rng(seed).standard_normal((rows, n + 100))
    return np.exp(signal.lfilter([1], [1, -rho], noise, axis=1)[:, 100:])


def coverage(series: np.ndarray) -> float:
    rows, n = series.shape
    table = describe(series.ravel(), np.arange(rows + 1) * n)
    return float(((table["low"] <= 1) & (table["high"] >= 1)).mean())


def test_each_statistic_of_ragged_rows_is_that_of_numpy() -> None:
    rng = np.random.default_rng(1)
    rows = [rng.lognormal(size=n) for n in (2, 3, 10, 7, 10, 100, 3, 11)]
    table = described(*map(list, rows))
    for name, truth in {
        "n": len,
        "median": np.median,
        "mean": np.mean,
        "std": lambda row: np.std(row, ddof=1),
        "min": np.min,
        "max": np.max,
    }.items():
        np.testing.assert_allclose(table[name], [truth(row) for row in rows], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("n", [9, 10, 25, 30, 100, 200])
def test_the_interval_of_independent_samples_lies_between_the_ranks_that_cover_more_and_less_than_95_percent(
    n: int,
) -> None:
    ordered = np.arange(n) + 1.0
    _, low, high = independent_interval(ordered[None, :])
    rank = int(low[0])
    assert low[0] + high[0] == pytest.approx(n + 1)
    assert 2 * stats.binom.cdf(rank - 1, n, 0.5) <= 0.05 < 2 * stats.binom.cdf(rank, n, 0.5)
    # To and fro between low and high ranks: correlated negatively, which hardly widens.
    zigzag = np.empty(n)
    zigzag[0::2], zigzag[1::2] = ordered[: (n + 1) // 2], ordered[::-1][: n // 2]
    row = described(list(zigzag)).iloc[0]
    assert 1 <= (row["high"] - row["low"]) / (high[0] - low[0]) <= 1.6


def test_the_interval_of_few_samples_is_their_whole_range() -> None:
    for n in range(2, 9):
        row = described([float((7 * i) % n) for i in range(n)]).iloc[0]
        assert (row["low"], row["high"]) == (row["min"], row["max"])


def test_a_single_sample_has_no_interval_and_no_deviation() -> None:
    row = described([3.0]).iloc[0]
    assert (row["n"], row["median"], row["mean"], row["min"], row["max"]) == (1, 3, 3, 3, 3)
    assert row[["low", "high", "std"]].isna().all()


def test_no_samples_give_no_statistics() -> None:
    table = described([1.0, 2.0], [], [3.0, 5.0])
    assert list(table["n"]) == [2, 0, 2]
    assert table.drop(columns="n").iloc[1].isna().all()
    assert list(table["median"])[::2] == [1.5, 4.0]
    assert described().empty


def test_a_row_that_holds_nan_is_nan_throughout() -> None:
    row = described([1.0, np.nan, 2.0]).iloc[0]
    assert row["n"] == 3
    assert row.drop("n").isna().all()


def test_equal_samples_have_an_interval_of_no_width() -> None:
    row = described([5.0] * 40).iloc[0]
    assert (row["low"], row["high"], row["std"]) == (5, 5, 0)


def test_one_wild_sample_moves_the_median_by_at_most_one_order_statistic() -> None:
    calm = list(np.random.default_rng(2).normal(1, 0.01, 30))
    wild = [*calm[:12], 100.0, *calm[13:]]
    before, after = described(calm, wild)["median"]
    assert abs(after - before) <= np.diff(np.sort(calm)).max()


@pytest.mark.parametrize("n", [6, 9, 10, 15, 25, 50, 100, 200])
def test_intervals_of_independent_samples_cover_the_median_in_at_least_94_percent(n: int) -> None:
    assert coverage(ar1(rho=0.0, rows=4000, n=n, seed=n)) >= 0.94


@pytest.mark.parametrize("n", [9, 10, 15, 25, 50, 100, 200])
def test_intervals_of_correlated_samples_cover_the_median_in_at_least_94_percent(n: int) -> None:
    assert coverage(ar1(rho=0.7, rows=4000, n=n, seed=n)) >= 0.94


@pytest.mark.parametrize(("n", "least"), [(10, 0.84), (25, 0.91), (50, 0.93), (100, 0.94), (200, 0.94)])
def test_intervals_of_strongly_correlated_samples_cover_what_the_documentation_says(n: int, least: float) -> None:
    assert coverage(ar1(rho=0.9, rows=4000, n=n, seed=n)) >= least


def test_the_widening_costs_independent_samples_little_width() -> None:
    series = ar1(rho=0.0, rows=2000, n=100, seed=3)
    table = describe(series.ravel(), np.arange(2001) * 100)
    ordered = np.sort(series, axis=1)
    assert (table["high"] - table["low"]).median() <= 1.15 * np.median(ordered[:, 60] - ordered[:, 39])


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7, 0.9])
def test_a_long_series_is_worth_as_many_independent_samples_as_its_process_says(rho: float) -> None:
    found = np.median([independent_worth(series) for series in ar1(rho=rho, rows=100, n=1000, seed=4)])
    assert found == pytest.approx(1000 * (1 - rho) / (1 + rho), rel=0.2)


def test_equal_samples_share_the_mean_of_their_ranks() -> None:
    row = np.repeat([0.0, 7.0, 0.0, 0.0, 1.0, 9.0], 10)[None, :]  # in runs, and mostly zeros
    np.testing.assert_array_equal(_ranks(row)[0], stats.rankdata(row[0]) - 1)


def test_an_interval_of_positive_samples_is_positive() -> None:
    wild = [1.0, 1.1, 1.2, 1.4, 2.0, 4.0, 30.0, 60.0, 90.0, 95.0]
    assert 0 < described(wild).iloc[0]["low"] < 1 and described([x - 50 for x in wild]).iloc[0]["low"] < -50


def test_one_series_is_described_as_a_row_of_many_is() -> None:
    series = [3.0, 1.0, 2.0, 5.0]
    row = described([1.0], series).iloc[1]
    assert describe_samples(series) == (row["median"], row["low"], row["high"]) == (2.5, 1.0, 5.0)


def test_a_drift_counts_as_next_to_no_independent_samples() -> None:
    drift = list(np.arange(1.0, 51.0))
    assert independent_worth(drift) <= 1
    row = described(drift).iloc[0]
    assert row["low"] <= 10 and row["high"] >= 45
