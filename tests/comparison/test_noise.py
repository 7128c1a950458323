"""The noise of a machine: how it is measured, and what it makes of a comparison."""

import re
from pathlib import Path
from typing import Any

import pytest

from lmsweep import analysis
from lmsweep.analysis.comparison.compare import Comparison, compare, select_sides
from lmsweep.analysis.data.process_variation import known_variation
from lmsweep.trials.results.metrics import DEVICE_TIME, WALL_TIME
from lmsweep.trials.spec.config import TrialConfig
from tests.support.command import lmsweep, lmsweep_here
from tests.support.made_up_results import Attempts, config, samples

STEADY = 1e-5
"""Half an interval, of 1, too small to matter."""


NOISE = config(device="cuda", model="medium")
SIDES = [config(device="cuda", compile=compiled) for compiled in ("none", "block")]


def processes(attempts: Attempts, trial: TrialConfig, *wall: float, device: tuple[float, ...] = ()) -> None:
    for place, median in enumerate(wall):
        values = {WALL_TIME: samples(median, STEADY * median)}
        if device:
            values[DEVICE_TIME] = samples(device[place], STEADY * device[place])
        attempts.ok(trial, values, sweep="noise")


def compared(attempts: Attempts, **options: Any) -> Comparison:
    frame = analysis.load(attempts.store, pooled=False)
    sides = select_sides(frame, {"compile": "none"}, {"compile": "block"})
    return compare(sides[0], sides[1], between=sides[2], variation=known_variation(frame), **options)


def test_noise_of_the_machine_widens_what_one_process_says(attempts: Attempts) -> None:
    for trial, wall in zip(SIDES, (0.1, 0.14), strict=True):
        processes(attempts, trial, wall)
    assert list(compared(attempts).frame["verdict"]) == ["slower"]
    processes(attempts, NOISE, 0.1, 0.13, 0.08, 0.12)
    sides = ("--baseline", "compile=none", "--contrast", "compile=block")
    said = lmsweep_here("compare", attempts.store.location, *sides, "--fail-on", "slower", "-v")
    assert "Standard deviation between processes, from repeated combinations: 14 % of wall time with gaps." in said


def test_device_times_have_a_variation_of_their_own(attempts: Attempts) -> None:
    processes(attempts, NOISE, 0.1, 0.13, device=(0.05, 0.0501))
    for trial, wall, device in zip(SIDES, (0.1, 0.12), (0.05, 0.0515), strict=True):
        processes(attempts, trial, wall, device=(device,))
    found = compared(attempts)
    assert found.warnings[0].endswith("0.17 % of device time.")
    assert list(found.frame["verdict"]) == ["host-limited"], "the device is busy for half of the step"


def test_a_cell_varies_as_the_kind_of_its_processes_that_varies_most(attempts: Attempts) -> None:
    for trial, device in zip(SIDES, (0.098, 0.01), strict=True):  # the host decides the time of the second
        processes(attempts, trial, 0.1, device=(device,))
    found = compared(attempts, values=[WALL_TIME])
    assert list(found.cells["kind"]) == ["host"]
    assert re.match("Standard deviation .* assumed: .* % of wall time that the host decides", found.warnings[0])


@pytest.mark.slow
def test_a_run_of_the_sweep_noise_ends_with_how_far_its_processes_differ(tmp_path: Path) -> None:
    one_cell = ("--set", "context_length=32", "--set", "precision=fp32")
    done = lmsweep("run", "noise-cpu", *one_cell, "--store", tmp_path / "store")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Each number is of 5 processes, whose medians differ by up to \d\S* %\.", done.stdout)
    rows = analysis.load(str(tmp_path / "store")).query("phase == 'step' and metric == 'time'")
    assert list(rows["processes"]) == [5]
