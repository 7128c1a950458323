"""Statistics of ragged samples, against NumPy, SciPy and simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy import signal, stats

from analysis.stats import describe, describe_samples
from trials.interval import effective_sample_size


def described(*rows: list[float]) -> pd.DataFrame:
    values = np.array([value for row in rows for value in row], dtype=float)
    return describe(values, np.cumsum([0, *map(len, rows)]))


def ar1(*, rho: float, rows: int, n: int, seed: int) -> np.ndarray:
    """Stationary autoregressive noise of median 1, skewed as times are."""
    noise = np.random.default_rng(seed).standard_normal((rows, n + 100))
    return np.exp(signal.lfilter([1], [1, -rho], noise, axis=1)[:, 100:])


def worth(samples: np.ndarray) -> np.ndarray:
    return effective_sample_size(samples, np.argsort(samples, axis=1))


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
def test_the_interval_of_independent_samples_is_the_narrowest_pair_of_order_statistics_that_reaches_95_percent(
    n: int,
) -> None:
    # To and fro between low and high ranks: correlated negatively, which does not widen.
    ordered = np.arange(n) + 1.0
    zigzag = np.empty(n)
    zigzag[0::2], zigzag[1::2] = ordered[: (n + 1) // 2], ordered[::-1][: n // 2]
    row = described(list(zigzag)).iloc[0]
    below = int(row["low"]) - 1
    assert row["high"] == n - below
    assert 2 * stats.binom.cdf(below, n, 0.5) <= 0.05 < 2 * stats.binom.cdf(below + 1, n, 0.5)


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


@pytest.mark.parametrize("n", [6, 9, 10, 15, 30, 50, 100, 200])
def test_intervals_of_independent_samples_cover_the_median_in_at_least_94_percent(n: int) -> None:
    assert coverage(ar1(rho=0.0, rows=4000, n=n, seed=n)) >= 0.94


@pytest.mark.parametrize("n", [30, 50, 100, 200])
def test_intervals_of_correlated_samples_cover_the_median_in_at_least_94_percent(n: int) -> None:
    assert coverage(ar1(rho=0.7, rows=4000, n=n, seed=n)) >= 0.94


def test_the_widening_costs_independent_samples_little_width() -> None:
    series = ar1(rho=0.0, rows=2000, n=100, seed=3)
    table = describe(series.ravel(), np.arange(2001) * 100)
    ordered = np.sort(series, axis=1)
    assert (table["high"] - table["low"]).median() <= 1.15 * np.median(ordered[:, 60] - ordered[:, 39])


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7, 0.9])
def test_the_effective_sample_size_is_that_of_the_process(rho: float) -> None:
    found = np.median(worth(ar1(rho=rho, rows=500, n=1000, seed=4)))
    assert found == pytest.approx(1000 * (1 - rho) / (1 + rho), rel=0.2)


def test_equal_samples_share_the_mean_of_their_ranks() -> None:
    n = 60
    row = np.repeat([0.0, 7.0, 0.0, 0.0, 1.0, 9.0], 10)  # in runs, and mostly zeros
    centred = stats.rankdata(row) - (n + 1) / 2
    rho = (centred[1:] @ centred[:-1]) / (centred @ centred)
    unbiased = (n * rho + 1) / (n - 4)
    assert 0 < unbiased < 1 - 1 / n
    assert worth(row[None, :])[0] == pytest.approx(n * (1 - unbiased) / (1 + unbiased))


def test_one_series_is_described_as_a_row_of_many_is() -> None:
    series = [3.0, 1.0, 2.0, 5.0]
    row = described([1.0], series).iloc[1]
    assert describe_samples(series) == (row["median"], row["low"], row["high"]) == (2.5, 1.0, 5.0)


def test_a_drift_counts_as_next_to_no_independent_samples() -> None:
    drift = np.arange(50.0)
    assert worth(drift[None, :])[0] <= 1
    row = described(list(drift)).iloc[0]
    assert (row["low"], row["high"]) == (0, 49)
