"""Statistics of ragged samples, against NumPy, SciPy and simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lmsweep.orchestrator.features.trial.trial_table import describe_samples
from lmsweep.trials.statistics.median_interval import effective_size_of, independent_interval
from lmsweep.trials.statistics.sample_stats import describe
from tests.support.simulated_steps import noise


def described(*rows: list[float]) -> pd.DataFrame:
    values = np.array([value for row in rows for value in row], dtype=float)
    return pd.DataFrame(describe(values, np.cumsum([0, *map(len, rows)])))


def alike(rho: float, *, rows: int, n: int, spread: float = 1.0) -> np.ndarray:
    """Noise of median 1 whose neighbours are so alike, skewed as times are."""
    return noise(np.random.default_rng(1), rho=rho, spread=spread, rows=rows, n=n)


def described_rows(series: np.ndarray) -> pd.DataFrame:
    rows, n = series.shape
    return pd.DataFrame(describe(series.ravel(), np.arange(rows + 1) * n))


def coverage(series: np.ndarray, *, median: float = 1.0) -> tuple[float, float]:
    table = described_rows(series)
    table = table[table["low"].notna()]
    return len(table) / len(series), float(((table["low"] <= median) & (table["high"] >= median)).mean())


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


@pytest.mark.parametrize("n", [9, 10, 25, 100])
def test_the_interval_of_independent_samples_lies_between_the_ranks_around_95_percent(n: int) -> None:
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


def test_fewer_than_six_samples_have_no_interval() -> None:
    for n in range(2, 6):
        row = described([float((7 * i) % n) for i in range(n)]).iloc[0]
        assert np.isnan(row["low"]) and np.isnan(row["high"]) and row["std"] > 0
        assert 2 * 0.5**n > 0.05, "their range covers the median less often"


def test_statistics_of_one_sample_of_none_of_nan_and_of_equal_ones() -> None:
    one, none, nan, equal = (row for _, row in described([3.0], [], [1.0, np.nan, 2.0], [5.0] * 40).iterrows())
    assert (one["n"], one["median"], one["mean"], one["min"], one["max"]) == (1, 3, 3, 3, 3)
    assert one[["low", "high", "std"]].isna().all()
    assert (none["n"], nan["n"]) == (0, 3) and none.drop("n").isna().all() and nan.drop("n").isna().all()
    assert (equal["low"], equal["high"], equal["std"]) == (5, 5, 0), "an interval of no width"
    assert described().empty


# The figures are in docs/lab/2026-11-27-tables-of-the-pages.md.


@pytest.mark.parametrize(
    ("rho", "n", "given", "covering"),
    [
        (0.0, 6, 0.4, 0.94), (0.0, 10, 0.94, 0.94), (0.0, 25, 0.99, 0.94), (0.0, 100, 1, 0.94),
        (0.5, 10, 0.65, 0.94), (0.7, 10, 0.50, 0.83), (0.9, 10, 0.35, 0.50),
        (0.7, 25, 0.85, 0.94), (0.9, 25, 0.50, 0.79), (0.9, 50, 0.70, 0.92), (0.9, 100, 0.98, 0.94),
    ],
)  # fmt: skip
def test_intervals_hold_the_median_as_often_as_documented(rho: float, n: int, given: float, covering: float) -> None:
    found = coverage(alike(rho, rows=4000, n=n))
    assert found[0] >= given and found[1] >= covering


def bursts(stay: float, *, rows: int, n: int) -> np.ndarray:
    """A busy machine: 3 % of noise, and in 30 % of the iterations a wait without a mean. They come in a row: the next
    is as busy with this probability."""
    random = np.random.default_rng(3)
    chances = random.random((rows, n + 50))
    busy = chances < 0.3
    for i in range(1, n + 50):
        busy[:, i] = chances[:, i] < np.where(busy[:, i - 1], stay, (1 - stay) * 3 / 7)
    steady = np.exp(0.03 * random.standard_normal(busy.shape))
    return (steady * np.where(busy, 1 + 10 * random.pareto(0.3, busy.shape), 1))[:, 50:]


@pytest.mark.parametrize(("stay", "n", "least"), [(0.3, 10, 0.94), (0.3, 50, 0.94), (0.7, 10, 0.94), (0.7, 50, 0.93)])
def test_intervals_on_a_busy_machine_cover_the_median(stay: float, n: int, least: float) -> None:
    series = bursts(stay, rows=4000, n=n)
    median = float(np.median(bursts(stay, rows=200, n=2000)))
    given, covering = coverage(series, median=median)
    assert given >= 0.8 and covering >= least


@pytest.mark.parametrize("n", [6, 9, 10, 100])
def test_no_interval_reaches_beyond_the_samples(n: int) -> None:
    for series in (*(bursts(stay, rows=300, n=n) for stay in (0.3, 0.9)), alike(0.97, rows=300, n=n, spread=4) - 5):
        table = described_rows(series)
        without = table["low"].isna()
        assert (without == table["high"].isna()).all()
        assert (without | (table["low"] >= table["min"]) & (table["high"] <= table["max"])).all()
        assert (without | (table["low"] <= table["median"]) & (table["high"] >= table["median"])).all()


def test_the_widening_costs_independent_samples_little_width() -> None:
    series = alike(0.0, rows=2000, n=100)
    table = described_rows(series)
    ordered = np.sort(series, axis=1)
    assert (table["high"] - table["low"]).median() <= 1.15 * np.median(ordered[:, 60] - ordered[:, 39])


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7, 0.9])
def test_a_long_series_is_worth_as_many_independent_samples_as_its_process_says(rho: float) -> None:
    found = np.median([effective_size_of(series) for series in alike(rho, rows=30, n=1000)])
    assert found == pytest.approx(1000 * (1 - rho) / (1 + rho), rel=0.2)


def test_one_series_is_described_as_a_row_of_many_is() -> None:
    series = [3.0, 1.0, 2.5, 2.0, 9.0, 5.0, 0.5, 4.0]
    row = described([1.0], series).iloc[1]
    assert describe_samples(series) == (row["median"], row["low"], row["high"]) == (2.75, 0.5, 9.0)


def test_a_drift_is_worth_one_independent_sample_at_most_and_has_no_interval() -> None:
    drift = list(np.arange(1.0, 51.0))
    assert effective_size_of(drift) <= 1
    assert described(drift).iloc[0][["low", "high"]].isna().all()
