"""The charts of the Pareto front: which cells are on it, and that a browser draws them."""

import itertools
from pathlib import Path

import pytest

from lmsweep.analysis.data.results import Results
from lmsweep.orchestrator.features.report.figures import pareto
from lmsweep.trials.analytic.prices import parse_prices
from tests.support.made_up_results import H100, H200, Attempts, gpu

PRICES = parse_prices(["H100=2", "H200=3"])


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A larger batch is faster per token and takes more memory; checkpointing saves memory for time; two devices."""
    attempts = Attempts(tmp_path / "results")
    for (device, slower), batch, checkpointing, attention in itertools.product(
        ((H100, 1.15), (H200, 1.0)), (2, 8), ("none", "block"), ("naive", "sdpa")
    ):
        again = 1.3 if checkpointing == "block" else 1.0
        seconds = slower * again * (0.004 * batch + 0.006) * (1.4 if attention == "naive" else 1.0)
        each = (1.5e9 if checkpointing == "block" else 3e9) * (1.8 if attention == "naive" else 1.0)
        one = gpu(batch_size=batch, checkpointing=checkpointing, attention=attention)
        attempts.step(one, seconds, 0.9 * seconds, within=1e-5, fingerprint=device)
        attempts.peak(one, 2e9 + batch * each, fingerprint=device)
    return attempts.store.location


def test_full_circles_are_the_front_and_the_line_joins_the_best_in_what_is_shown(store: str) -> None:
    memory, money = pareto.fronts(Results(store, prices=PRICES))
    assert memory.title == "speed and memory of small, context_length 256, mode train_step"
    for figure in (memory, money):
        *devices, line = figure.traces
        shown = [
            (x, y, trace["name"].endswith("on the front"))
            for trace in devices
            for x, y in zip(trace["x"], trace["y"], strict=True)
        ]
        assert len(shown) == 16
        assert list(line["x"]) == sorted(line["x"]) and list(line["y"]) == sorted(line["y"])
        for x, y, is_full in shown:
            beaten = any((a >= x and b < y) or (a > x and b <= y) for a, b, _ in shown)
            assert beaten or is_full
            assert ((x, y) in zip(line["x"], line["y"], strict=True)) == (not beaten)
    assert memory.traces[0]["lines"][0][1].startswith("peak ")


def test_without_memory_and_without_prices_there_is_no_front(attempts: Attempts) -> None:
    for batch in (1, 2, 4):
        attempts.step(gpu(batch_size=batch), 0.1)
    assert list(pareto.fronts(Results(attempts.store))) == []
    (money,) = pareto.fronts(Results(attempts.store, prices=parse_prices(["H200=3"])))
    assert money.title.startswith("speed and money")
