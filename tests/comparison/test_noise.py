"""The noise of a machine: how it is measured, what it makes of a comparison, how often a verdict is then wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lmsweep import analysis
from lmsweep.analysis.comparison.compare import Comparison, compare, select_sides
from lmsweep.analysis.comparison.noise import machines, noise_table
from lmsweep.orchestrator.commands.app import app
from lmsweep.trials.results.metrics import DEVICE_TIME, WALL_TIME
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.statistics.significance import direction, holm, p_values, ratio_of_medians
from tests.statistics.test_significance import noise as correlated
from tests.support.command import lmsweep
from tests.support.made_up_results import Attempts, config, samples

STEADY = 1e-5
"""Half an interval, of 1, too small to matter."""


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path / "results")


def measure_noise(attempts: Attempts, *wall: float, device: tuple[float, ...] = (), **fields: Any) -> None:
    """Processes of one cell of the sweep `noise`, with these medians."""
    trial = config(device="cuda", model="medium")
    for place, median in enumerate(wall):
        values = {WALL_TIME: samples(median, STEADY * median)}
        if device:
            values[DEVICE_TIME] = samples(device[place], STEADY * device[place])
        attempts.ok(trial, values, sweep="noise", **fields)


def two_sides(attempts: Attempts, *processes: tuple[float, float]) -> None:
    for both in processes:
        for compiled, median in zip(("none", "block"), both, strict=True):
            attempts.ok(config(device="cuda", compile=compiled), {WALL_TIME: samples(median, STEADY * median)})


def compared(attempts: Attempts, **options: Any) -> Comparison:
    frame = analysis.load(attempts.store, pooled=False)
    sides = select_sides(frame, {"compile": "none"}, {"compile": "block"})
    return compare(sides[0], sides[1], between=sides[2], machines=machines(frame), **options)


def test_the_noise_of_a_machine_is_the_largest_difference_between_two_processes_of_a_cell(attempts: Attempts) -> None:
    measure_noise(attempts, 0.1, 0.104, 0.102, device=(0.05, 0.0502, 0.0501))
    known = machines(analysis.load(attempts.store, pooled=False))
    assert known == {
        ("NVIDIA H200", WALL_TIME): pytest.approx(0.04),
        ("NVIDIA H200", DEVICE_TIME): pytest.approx(0.004),
    }
    listing = noise_table(analysis.load(attempts.store, pooled=False))
    assert listing.notes == [
        "On this machine two processes of the same cell differ by up to 4 % (step.time) and 0.4 % (step.device_time); "
        "differences below that mean nothing."
    ]
    assert list(listing.frame["processes"]) == [3, 3]
    assert list(listing.frame["spread (%)"]) == pytest.approx([3.92, 0.399], rel=0.01)


def test_processes_on_a_busy_host_do_not_count(attempts: Attempts) -> None:
    measure_noise(attempts, 0.1, 0.101)
    measure_noise(attempts, 0.3, flags=(Flag.BUSY_HOST,))
    frame = analysis.load(attempts.store, pooled=False)
    assert machines(frame) == {("NVIDIA H200", WALL_TIME): pytest.approx(0.01)}
    assert "Left out: 1 of 3 processes, which ran on a busy host." in noise_table(frame).notes


def test_a_store_without_such_results_is_refused(attempts: Attempts) -> None:
    two_sides(attempts, (0.1, 0.1))
    with pytest.raises(RequestError, match="no results of `lmsweep noise`"):
        noise_table(analysis.load(attempts.store, pooled=False))


def test_a_difference_below_the_noise_of_the_machine_does_not_count(attempts: Attempts) -> None:
    two_sides(attempts, (0.1, 0.103))
    before = compared(attempts)
    assert list(before.frame["verdict"]) == ["slower"]
    assert before.floors == ("How far two processes differ on NVIDIA H200 is not known: `lmsweep noise` measures it.",)
    measure_noise(attempts, 0.1, 0.104)
    found = compared(attempts)
    assert list(found.frame["verdict"]) == ["ambiguous"]
    assert found.floors == ("Floor 4 %: measured by `lmsweep noise` on NVIDIA H200 (1 cell).",)
    assert found.least == (pytest.approx(0.04),)
    assert compared(attempts, least=0.06).floors == ()


def test_a_difference_above_the_noise_still_counts_and_the_gate_uses_the_floor(attempts: Attempts) -> None:
    two_sides(attempts, (0.1, 0.103))
    command = [
        *("compare", attempts.store.location, "--baseline", "compile=none", "--contrast", "compile=block"),
        *("--fail-on", "slower"),
    ]
    assert CliRunner().invoke(app, command).exit_code == 1
    measure_noise(attempts, 0.1, 0.102, 0.1025)
    assert CliRunner().invoke(app, command).exit_code == 1
    measure_noise(attempts, 0.104)
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0 and "Floor 4 %: measured by `lmsweep noise` on NVIDIA H200 (1 cell)." in done.stdout


def test_the_processes_of_a_cell_set_its_floor(attempts: Attempts) -> None:
    two_sides(attempts, (0.1, 0.11), (0.1, 0.11), (0.106, 0.11), (0.1, 0.11), (0.1, 0.11))
    found = compared(attempts)
    assert found.floors == ("Floor 6 %: how far the processes of these cells differ (1 cell).",)
    assert list(found.frame["verdict"]) == ["slower"]
    measure_noise(attempts, 0.1, 0.12)
    assert list(compared(attempts).frame["verdict"]) == ["ambiguous"]


def test_device_times_have_a_floor_of_their_own(attempts: Attempts) -> None:
    measure_noise(attempts, 0.1, 0.13, device=(0.05, 0.052))
    for compiled, wall, device in (("none", 0.1, 0.05), ("block", 0.12, 0.0515)):
        values = {WALL_TIME: samples(wall, STEADY), DEVICE_TIME: samples(device, STEADY)}
        attempts.ok(config(device="cuda", compile=compiled), values)
    found = compared(attempts)
    assert found.floors == ("Floor 4 %: measured by `lmsweep noise` on NVIDIA H200 (1 cell).",)
    assert list(found.frame["verdict"]) == ["ambiguous"]


def bursty(random: np.random.Generator, seconds: float, processes: int, *, extra: float) -> Any:
    """How much slower each of so many processes in a row is on a host that is idle, busy for seconds, idle again.

    A process takes `seconds`. Busy and idle periods last 3 and 20 seconds on average. While the host is busy, steps
    take up to `extra` more; each process also has an offset of its own, of 0.5 %.
    """
    length = seconds * processes
    edges = np.cumsum(random.exponential(1.0, 2 * int(length / 20) + 50) * np.tile([20.0, 3.0], int(length / 20) + 25))
    steps = np.linspace(0, length, 20 * processes, endpoint=False)
    busy = np.searchsorted(edges, steps) % 2 == 1
    slower = (busy * random.uniform(0, extra, len(steps))).reshape(processes, 20)
    return np.exp(0.005 * random.standard_normal((processes, 1)) + slower)


@pytest.mark.parametrize("per_side", [1, 3])
@pytest.mark.parametrize("extra", [0.05, 0.1, 0.3])
def test_equal_things_are_rarely_called_different_on_a_host_that_is_busy_at_times(per_side: int, extra: float) -> None:
    random, cells, wrong, unaware = np.random.default_rng(4), 24, [], []
    for _ in range(100):
        of_noise = bursty(random, 3.0, 30, extra=extra).reshape(5, 6, 20)  # five rounds of six cells, as in the sweep
        medians = np.median(of_noise * correlated(random, 5, 6, 20, rho=0.3, spread=0.01), axis=2)
        known = (medians.max(axis=0) / medians.min(axis=0) - 1).max()
        sides = []
        for _ in range(2):
            slower = bursty(random, 3.0, per_side * cells, extra=extra).reshape(per_side, cells, 20).transpose(1, 0, 2)
            sides.append(slower * correlated(random, cells, per_side, 20, rho=0.3, spread=0.01))
        ratio, low, high = ratio_of_medians(*sides)
        own = [np.median(side, axis=2).max(axis=1) / np.median(side, axis=2).min(axis=1) - 1 for side in sides]
        p = holm(p_values(*sides))
        least, noise = np.full(cells, 0.02), np.maximum(known, np.maximum(*own))
        wrong.append(np.abs(direction(ratio, low, high, p, least, noise)) == 1)
        unaware.append(np.abs(direction(ratio, low, high, p, least)) == 1)
    assert np.mean(wrong) <= 0.05
    if per_side == 1:
        assert np.mean(unaware) > np.mean(wrong)


@pytest.mark.slow
def test_lmsweep_noise_measures_each_cell_in_five_processes_and_says_how_far_they_differ(tmp_path: Path) -> None:
    done = lmsweep("noise", tmp_path / "store")
    assert done.returncode == 0, done.stderr
    if "Each cell has one process" in done.stdout:
        assert "which ran on a busy host" in done.stdout
        pytest.skip("the machine is too busy to say how far two processes differ, and lmsweep says so")
    assert "On this machine two processes of the same cell differ by up to" in done.stdout
    rows = analysis.load(str(tmp_path / "store")).query("phase == 'step' and metric == 'time'")
    assert list(rows["processes"]) == [5] * 6
    again = lmsweep("noise", tmp_path / "store")
    assert ", 0 to run" in again.stdout and "differences below that mean nothing" in again.stdout
