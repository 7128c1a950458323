"""The live view of a run, drawn as a terminal of 80 columns shows it."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimate
from lmsweep.orchestrator.running.progress.eta import Eta
from lmsweep.orchestrator.running.progress.trial_progress import RunProgress
from lmsweep.orchestrator.running.progress.trial_words import descriptions
from lmsweep.trials.machine.live_phase import read_phase, report_phase, watched_phases
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.spec.config import TrialConfig
from tests.support.made_up_results import H200, LAPTOP, planned

ESTIMATE = Estimate(seconds=30.0, iterating=20.0, reason=None, is_new=True, rests_on_model=True)


def planned_trials(count: int) -> list[PlannedTrial]:
    configs = [TrialConfig(d_model=2, context_length=16 + index, attention="sdpa") for index in range(count)]
    return [planned(one, index, environment=H200 if index % 2 else LAPTOP) for index, one in enumerate(configs)]


def run_of(trials: list[PlannedTrial], out: io.StringIO | None = None, **options: Any) -> RunProgress:
    eta = Eta(trials, {one.index: ESTIMATE for one in trials})
    options = {"names": descriptions(trials)} | options
    return RunProgress(trials, eta, Console(width=80, file=out or io.StringIO()), **options)


def drawn(progress: RunProgress) -> str:
    console = Console(width=80, file=io.StringIO())
    with console.capture() as captured:
        console.print(progress.view.draw())
    return captured.get()


def test_the_view_names_devices_trials_phases_flags_and_time_left_in_80_columns() -> None:
    trials = planned_trials(6)
    with watched_phases() as folder:
        progress = run_of(trials, phases=folder)
        assert drawn(progress).count("starting Ray") == 2
        for one in trials[:3]:
            progress.started(one)
        report_phase(trials[1].trial_id, "warmup")
        assert read_phase(folder, trials[1].trial_id) == "warmup"
        row = Attempt.begin(trials[2].trial).failure("noop", Status.ERROR, "ValueError: no", LAPTOP)
        progress.ended(trials[2], [replace(row, flags=("busy_host",))])
        text = drawn(progress)
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert any("H200" in line and "0/3" in line for line in lines)
    assert any("Laptop" in line and "1/3" in line and "1 failed" in line and "left" in line for line in lines)
    assert any("context_length 17" in line and "warming up" in line and "of ~30.0 s" in line for line in lines)
    assert any("context_length 16" in line and "starting" in line for line in lines)
    assert "flags, explained at the end: 1 busy_host" in text


def test_the_view_shows_the_whole_name_of_a_trial_that_runs() -> None:
    (only,) = planned_trials(1)
    name = "timing: model [small], context_length 128, precision bf16, mode train_forward"
    progress = run_of([only], names={0: name})
    progress.started(only)
    lines = drawn(progress).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(line[:43].strip() for line in lines[1:]).strip() == name


@pytest.mark.parametrize("failing", [False, True])
def test_a_thousand_trials_do_not_flood_a_log(failing: bool) -> None:
    trials, output = planned_trials(1000), io.StringIO()
    progress = run_of(trials, output)
    with progress:
        for one in trials:
            progress.started(one)
            attempt = Attempt.begin(one.trial)
            rows = [attempt.failure("noop", Status.ERROR, "ValueError: no", LAPTOP)] if failing else []
            progress.ended(one, rows)
    lines = [line for line in output.getvalue().splitlines() if line.startswith("[")]
    assert 190 <= len(lines) <= 250
    assert lines[-1].startswith("[1000/1000]") and ("1000 failed so far" in lines[-1]) == failing


def test_a_device_without_running_trials_shows_no_time_left() -> None:
    trials, out = [replace(one, environment=H200) for one in planned_trials(2)], io.StringIO()
    progress = run_of(trials, out)
    for one, left in zip(trials, (True, False), strict=True):
        progress.started(one)
        progress.ended(one, [Attempt.begin(one.trial).failure("noop", Status.UNSUPPORTED, "no", H200)])
        assert (" left" in drawn(progress)) == left
    assert "[2/2]" in out.getvalue() and " left" not in out.getvalue().splitlines()[-1]
