"""What tables and comparisons make of steps whose batches differ: times of a real token, and padding."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lmsweep import analysis
from lmsweep.orchestrator.features.best.cells.cells import cells_of
from lmsweep.orchestrator.features.best.cells.goal import parse_aim
from lmsweep.orchestrator.features.report.answers.headline import headline_of
from lmsweep.orchestrator.features.report.answers.store_answers import answers_of
from lmsweep.orchestrator.features.report.content import content_of
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import TrialConfig
from tests.support.command import lmsweep_here
from tests.support.made_up_results import H200, Attempts, config, gpu, samples

LENGTHS = "lognormal(400, 0.8, 4096)"
UNITS = {"step.padding": "share", "step.real_tokens_per_second": "tokens/s"}


def varied(batching: str) -> TrialConfig:
    return config(context_length=4096, lengths=LENGTHS, batching=batching)


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Packed steps take longer than padded ones, and have more tokens that are no padding."""
    attempts = Attempts(tmp_path / "results")
    for batching, seconds, tokens, padding in (("padded", 1.0, 1000, 0.75), ("packed", 2.0, 4000, 0.02)):
        values = {
            "step.time": samples(seconds, 0.01),
            "step.token_time": samples(seconds / tokens, 0.01 / tokens),
            "step.padding": (padding,),
            "step.real_tokens_per_second": (tokens / seconds,),
        }
        for _ in range(3):
            attempts.ok(varied(batching), values, units=UNITS)
    return attempts.store.location


def test_a_table_shows_the_time_of_a_real_token_and_the_padding(store: str) -> None:
    shown = lmsweep_here("table", store, "--rows", "batching")
    assert "step.token_time" in shown and "step.padding (%)" in shown and "75" in shown


def test_tokens_per_second_are_those_that_are_no_padding_and_flops_are_unknown(store: str) -> None:
    frame = analysis.load(store)
    steps = frame[(frame["phase"] == "step") & (frame["metric"] == "time")].set_index("batching")
    assert dict(steps["tokens_per_second"]) == {"padded": 1000.0, "packed": 2000.0}
    assert np.isnan(steps["flops"]).all() and np.isnan(steps["mfu"]).all()
    assert "tflops: the FLOPs are unknown" in analysis.render(analysis.pivot(frame, values=["step.tflops"]), "text")


def test_steps_of_one_shape_have_their_own_time_and_batchings_are_compared_by_tokens_beside_them(store: str) -> None:
    Attempts(Path(store)).ok(config(context_length=4096), {"step.time": samples(1.0, 0.01)})
    assert "step.time" in lmsweep_here("table", store, "--rows", "batching,lengths")
    Attempts(Path(store)).ok(config(context_length=512), {"step.time": samples(1.0, 0.01)})
    shown = lmsweep_here("compare", store, "--baseline", "batching=padded", "--contrast", "batching=packed")
    assert "step.token_time" in shown and "time 2 times as fast" in shown, shown


def test_the_best_batching_has_the_cheapest_real_tokens_and_the_peak_of_its_run(store: str) -> None:
    for batching, peak in (("padded", 5e9), ("packed", 3e9)):
        values = {"step.peak_allocated": (1e9, 2e9), "run.peak_allocated": (peak,)}
        units = dict.fromkeys(values, "B")
        Attempts(Path(store)).ok(varied(batching), values, units=units, workload="memory")
    cells = {cell.config.batching: cell for cell in cells_of(analysis.load(store))}
    aim = parse_aim("tokens/s", [], [])
    costs = {name: cell.cost(aim) for name, cell in cells.items()}
    assert {name: cost and round(1 / cost.median) for name, cost in costs.items()} == {"padded": 1000, "packed": 2000}
    assert {name: cell.peak for name, cell in cells.items()} == {"padded": 5e9, "packed": 3e9}


def test_the_page_names_the_winner_and_the_padding_of_each_option(store: str) -> None:
    attempts = analysis.load(store, pooled=False)
    headline, details = headline_of(next(iter(answers_of(attempts))))
    assert "packed" in headline and "2 times as fast" in headline
    assert "Padding: batching padded 75 to 75 %, batching packed 2 to 2 %." in " ".join(details)


def details_of_packed_and_padded(folder: Path, fingerprint: Fingerprint) -> str:
    attempts = Attempts(folder)
    for batching, seconds in (("padded", 1e-3), ("packed", 1e-4)):
        size = {"context_length": 256, "num_layers": 1, "d_model": 64, "num_heads": 4, "d_ff": 96}
        drawn = {"lengths": "lognormal(60, 0.7, 256)", "batching": batching}
        tiny = replace(gpu(attention="sdpa"), model=None, **size, **drawn)
        for _ in range(3):
            values = {"step.token_time": samples(seconds, seconds / 100), "step.time": samples(seconds, seconds / 100)}
            values |= {"step.padding": (0.1,), "step.real_tokens_per_second": (1.0,)}
            attempts.ok(tiny, values, units=UNITS, fingerprint=fingerprint)
    return " ".join(content_of(attempts.store).details)


@pytest.mark.slow
def test_the_page_predicts_the_safe_size_of_the_winner(tmp_path: Path) -> None:
    details = details_of_packed_and_padded(tmp_path / "results", H200)
    assert "Safe size of batching packed, eager, lengths lognormal(60, 0.7, 256): batch_size " in details
    assert "fits every batch in 100 runs of 1,000 steps" in details


def test_the_page_of_a_device_of_unknown_memory_has_no_safe_size(tmp_path: Path) -> None:
    assert "Safe size" not in details_of_packed_and_padded(tmp_path / "results", replace(H200, device_memory=None))
