"""The noise of a machine: how it is measured, what it makes of a comparison, how often a verdict is then wrong."""

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lmsweep import analysis
from lmsweep.analysis.comparison.compare import Comparison, compare, select_sides
from lmsweep.analysis.data.process_variation import known_variation
from lmsweep.orchestrator.commands.app import app
from lmsweep.orchestrator.features.noise import UntilBusy
from lmsweep.orchestrator.features.noise.noise_cells import machines, noise_table
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.results.metrics import DEVICE_TIME, WALL_TIME
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import RequestError
from tests.support.command import lmsweep
from tests.support.made_up_results import Attempts, config, samples

STEADY = 1e-5
"""Half an interval, of 1, too small to matter."""


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
    return compare(sides[0], sides[1], between=sides[2], variation=known_variation(frame), **options)


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


def test_noise_of_the_machine_widens_what_one_process_says(attempts: Attempts) -> None:
    two_sides(attempts, (0.1, 0.14))
    assert list(compared(attempts).frame["verdict"]) == ["slower"]
    measure_noise(attempts, 0.1, 0.13, 0.08, 0.12)
    found = compared(attempts)
    assert list(found.frame["verdict"]) == ["ambiguous"]
    assert (
        found.warnings[0] == "Standard deviation between processes, from repeated cells: 14 % of wall time with gaps."
    )
    command = [
        *("compare", attempts.store.location, "--baseline", "compile=none", "--contrast", "compile=block"),
        *("--fail-on", "slower"),
    ]
    assert CliRunner().invoke(app, command).exit_code == 0


def test_processes_of_the_cell_decide_as_they_differ(attempts: Attempts) -> None:
    two_sides(attempts, (0.1, 0.11), (0.1, 0.11), (0.106, 0.11), (0.1, 0.11), (0.1, 0.11))
    assert list(compared(attempts).frame["verdict"]) == ["slower"]
    two_sides(attempts, (0.13, 0.08), (0.14, 0.09))
    assert list(compared(attempts).frame["verdict"]) == ["ambiguous"]


def test_device_times_have_a_variation_of_their_own(attempts: Attempts) -> None:
    measure_noise(attempts, 0.1, 0.13, device=(0.05, 0.0501))
    for compiled, wall, device in (("none", 0.1, 0.05), ("block", 0.12, 0.0515)):
        values = {WALL_TIME: samples(wall, STEADY), DEVICE_TIME: samples(device, STEADY)}
        attempts.ok(config(device="cuda", compile=compiled), values)
    found = compared(attempts)
    assert found.warnings[0].endswith("0.17 % of device time.")
    assert list(found.frame["verdict"]) == ["host-limited"], "the device is busy for half of the step"


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


def test_noise_stops_once_most_processes_ran_on_a_busy_host(attempts: Attempts) -> None:
    calm, busy = (attempts.ok(config(), {"step.time": (0.1, 0.2)}, flags=flags) for flags in ((), (Flag.BUSY_HOST,)))
    search = UntilBusy()
    for position, (rows, stops) in enumerate(
        [(busy, False), (calm, False), (busy, False), (calm, False), (busy, True)]
    ):
        assert search.choose({*range(position, 9)}) == position
        search.learn_trial(position, rows)
        assert search.is_too_busy == stops
    assert search.choose({5, 6}) is None


@pytest.mark.slow
def test_noise_on_a_busy_host_ends_after_a_few_processes_and_says_why(tmp_path: Path) -> None:
    burn = [sys.executable, "-c", "import os\nos.nice(19)\nwhile True: pass"]
    with ExitStack() as burning:
        for _ in usable_cores():
            burning.callback(burning.enter_context(subprocess.Popen(burn)).kill)
        done = lmsweep("noise", tmp_path / "store")
    assert done.returncode == 1, done.stdout + done.stderr
    said = re.search(r"stopped, as (\d) of (\d) processes ran on a busy host", done.stderr)
    assert said and int(said[1]) > int(said[2]) / 2
    ran = analysis.load(str(tmp_path / "store"), pooled=False)["attempt_id"].nunique()
    assert int(said[2]) == ran < 30
