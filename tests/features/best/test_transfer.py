"""What another device would do: scaled by predicted steps, calibrated by cells measured on both, its error said."""

from pathlib import Path

import numpy as np
import pytest

from lmsweep.analysis import load
from lmsweep.orchestrator.features.best.best_transfer import StepRatios
from lmsweep.orchestrator.features.best.cell_costs import key_of
from lmsweep.orchestrator.features.best.cells.cells import Cell, cells_of
from lmsweep.orchestrator.features.best.transfer import Transfer, is_on, transfers
from lmsweep.trials.analytic.datasheets import device_named
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.config import TrialConfig
from tests.support.command import ROOT, lmsweep_here
from tests.support.made_up_results import H100, H200, Attempts, gpu

pytestmark = pytest.mark.usefixtures("warm")

ON_H100, ON_H200 = device_named("H100 SXM"), device_named("H200 SXM")
assert ON_H100 and ON_H200
GRID = [gpu(batch_size=size, precision=name) for size in (4, 8) for name in ("tf32", "bf16")]
BIG = gpu(batch_size=16)


def stored(attempts: Attempts, *, factor: float | None, first: float = 1.0) -> list[Cell]:
    """The grid on H100s and, with a factor, on H200s: `factor` times what is predicted, the first cell more."""
    for number, one in enumerate(GRID):
        step_of(attempts, one, 0.01 * (number + 1), H100)
    cells = cells_of(load(attempts.store))
    if factor is None:
        return cells
    ratios = StepRatios(cells)
    for cell in cells:
        number = GRID.index(cell.config)
        seconds = 0.01 * (number + 1) * ratios.of(cell, ON_H200).middle * factor * (first if number == 0 else 1)
        step_of(attempts, cell.config, seconds, H200)
    return cells_of(load(attempts.store))


def step_of(attempts: Attempts, trial: TrialConfig, device_seconds: float, device: Fingerprint) -> None:
    """The host makes it take twice as long."""
    attempts.step(trial, 2 * device_seconds, device_seconds, within=1e-7, fingerprint=device)


def for_h200(cells: list[Cell]) -> Transfer:
    (found,) = transfers(cells, ON_H200, StepRatios(cells).of)
    return found


def test_a_cell_is_predicted_without_its_own_result(attempts: Attempts) -> None:
    found = for_h200(stored(attempts, factor=1.2, first=2.0))
    assert found.factor == pytest.approx(1.2 * 2**0.25)
    assert found.cells[0].error == pytest.approx(-0.5, abs=1e-6)
    assert found.cells[1].error == pytest.approx(2 ** (1 / 3) - 1, abs=1e-6)  # the first is one of three that calibrate


def test_without_a_cell_on_the_target_the_interval_is_that_of_both_predictions(attempts: Attempts) -> None:
    found = for_h200(stored(attempts, factor=None))
    assert (found.factor, found.errors) == (1.0, [])
    assert all(1.2 < one.interval[1] / one.interval[0] < 1.6 for one in found.cells)
    text = lmsweep_here("best", attempts.store.location, "--for", "H200 SXM", "--no-predict")
    assert "the interval is that of the ratio" in text and "[" in text


@pytest.mark.slow
def test_from_an_h100_to_an_h200_it_was_3_percent_off() -> None:
    reference = ROOT / "analysis" / "reference"
    cells = [one for name in ("h100-devices", "h200-devices") for one in cells_of(load(str(reference / name)))]
    for target in (ON_H200, ON_H100):
        (found,) = transfers(cells, target, StepRatios(cells).of)
        errors = np.abs(found.errors)
        assert len(errors) == 24
        assert errors.mean() < 0.032 and errors.max() < 0.085
        within = [one.interval[0] <= one.measured <= one.interval[1] for one in found.cells]
        assert sum(within) >= 22
        (alone,) = transfers([one for one in cells if not is_on(one, target)], target, StepRatios(cells).of)
        there = {key_of(one.cell.config): one.measured for one in found.cells}
        off = [one.seconds / there[key_of(one.cell.config)] for one in alone.cells]
        held = [one.interval[0] <= there[key_of(one.cell.config)] <= one.interval[1] for one in alone.cells]
        assert sum(held) >= 22 and np.abs(np.log(off)).mean() < 0.05, off


@pytest.mark.slow
def test_best_for_another_device_prices_it_and_leaves_out_what_would_not_fit(attempts: Attempts) -> None:
    stored(attempts, factor=None)
    other = Attempts(Path(attempts.store.location).parent / "other")
    for one in GRID[:3]:
        step_of(other, one, 0.02, H200)
    step_of(attempts, BIG, 1.0, H100)
    attempts.peak(BIG, 30e9, fingerprint=H100)
    options = ("--with", other.store.location, "--price", "H100=2", "--price", "A10=1", "--price", "H200=4")
    words = ("best", attempts.store.location, "--for", "H200 SXM,A10", "--goal", "$/Mtoken", "--no-predict")
    text = lmsweep_here(*words, *options)
    assert "Best for $/Mtoken by device time: " in text
    assert "from 3 combinations measured on both" in text
    assert "1 of 5 combinations are left out" in text  # 30 GB do not fit on an A10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "precisions", "reason"),
    [
        ("T4", ("fp16", "bf16"), "T4 has no bfloat16 arithmetic"),
        ("A100", ("tf32", "fp8_tensorwise"), "fp8_tensorwise needs the float8 tensor cores"),
    ],
)
def test_what_a_device_lacks_is_left_out_for_that_reason(
    attempts: Attempts, device: str, precisions: tuple[str, str], reason: str
) -> None:
    for precision in precisions:
        step_of(attempts, gpu("tiny", precision=precision), 0.01, H100)
    text = lmsweep_here("best", attempts.store.location, "--for", device, "--no-predict")
    assert f"1 combination left out: {reason}" in text and precisions[0] in text
    assert f"precision {precisions[1]}" not in text.split(f"and predicted for {device}")[-1]
