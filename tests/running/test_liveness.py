"""A run reports a trial that is overdue."""

import io
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimates
from lmsweep.orchestrator.running.admission import Gate
from lmsweep.orchestrator.running.progress import liveness
from lmsweep.orchestrator.running.progress.eta import Eta
from lmsweep.orchestrator.running.progress.liveness import Liveness
from lmsweep.orchestrator.running.progress.trial_progress import RunProgress
from lmsweep.orchestrator.running.store_writer import StoreWriter
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.store.store import Store
from tests.store.test_store import CONFIG
from tests.support.made_up_results import LAPTOP


def planned(index: int) -> PlannedTrial:
    config = replace(CONFIG, context_length=16 * (index + 1), timeout_seconds=0.2)
    trial = Trial(config=config, workloads=("timing",), sweep="test")
    return PlannedTrial(
        index=index,
        trial=trial,
        trial_id=trial_id(config),
        action="run",
        reason=None,
        environment=LAPTOP,
        placement=None,
    )


def test_a_trial_overdue_after_its_timeout_is_reported_once(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(liveness, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(liveness, "LATE_SECONDS", 0.2)
    store, trials, said = Store(str(tmp_path)), [planned(0), planned(1)], io.StringIO()
    estimates = Estimates(store)
    eta = Eta(trials, {one.index: estimates.of(one) for one in trials})
    progress = RunProgress(trials, eta, Console(file=said))
    writer = StoreWriter(store, lambda planned, records: None)
    with Liveness(trials, Gate(eta, until=None, on_close=lambda: None), progress, writer):
        progress.started(trials[1])
        time.sleep(1.0)
    writer.close()
    (line,) = said.getvalue().splitlines()
    assert line.startswith(
        "context_length 32: 0 s after its start, with a timeout of 0.2 s, its worker does not answer"
    )


def test_a_run_says_once_that_its_time_is_over_while_a_trial_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(liveness, "LOOK_SECONDS", 0.05)
    store, trials, said = Store(str(tmp_path)), [planned(0)], io.StringIO()
    eta = Eta(trials, {one.index: Estimates(store).of(one) for one in trials})
    progress = RunProgress(trials, eta, Console(file=said))
    writer = StoreWriter(store, lambda planned, records: None)
    gate = Gate(eta, until=time.monotonic() + 0.1, on_close=lambda: None)
    with Liveness(trials, gate, progress, writer):
        progress.started(trials[0])
        time.sleep(0.5)
    writer.close()
    assert said.getvalue() == "the time for the run is over; finishing 1 trial\n"
    gate.ended(trials[0])
    assert gate.limit(trials[0]) == (gate.until, 2 * eta.expected(trials[0]))
    assert Gate(eta, until=1.0, on_close=lambda: None, here=False).limit(trials[0]) is None


def test_the_first_trial_of_a_busy_machine_is_measured_whatever_its_estimate_was(tmp_path: Path) -> None:
    trials, estimates = [planned(0), planned(1)], Estimates(Store(str(tmp_path)))
    gate = Gate(
        Eta(trials, {one.index: estimates.of(one) for one in trials}),
        until=time.monotonic() + 60,
        on_close=lambda: None,
    )
    assert gate.admits(trials[0])
    until, seconds = gate.limit(trials[0]) or (0.0, 0.0)
    assert until == gate.until and seconds == pytest.approx(120, abs=1)
    gate.ended(trials[0])
    assert (gate.limit(trials[1]) or (0.0, 120.0))[1] < 60
