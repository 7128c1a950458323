"""A run reports a trial that is overdue."""

import io
import re
import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lmsweep.orchestrator.cluster.placement import Placement
from lmsweep.orchestrator.interrupt import handled
from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.time_estimate import Estimates
from lmsweep.orchestrator.running.admission import Gate
from lmsweep.orchestrator.running.progress import liveness
from lmsweep.orchestrator.running.progress.eta import Eta
from lmsweep.orchestrator.running.progress.liveness import Liveness
from lmsweep.orchestrator.running.progress.trial_progress import RunProgress
from lmsweep.orchestrator.running.progress.trial_words import descriptions
from lmsweep.orchestrator.running.store_writer import StoreWriter
from lmsweep.trials.results.record import Record
from lmsweep.trials.store.store import Store
from tests.support.made_up_results import TINY, planned


def timed(count: int, slots: int = 1) -> list[PlannedTrial]:
    """Trials with a short timeout."""
    placement = Placement(bundle=(("CPU", 1.0),), nodes=1, node_ids=(), slots=slots)
    trials = [replace(TINY, context_length=16 * (index + 1), timeout_seconds=0.2) for index in range(count)]
    return [planned(one, index, workload="timing", placement=placement) for index, one in enumerate(trials)]


def eta_of(trials: list[PlannedTrial], *seconds: float, until: float | None = None) -> Eta:
    """Of trials that take so long; without seconds, as long as is expected of them if nothing was measured yet."""
    new = Estimates(Store("nothing-measured"))
    expected = seconds or [new.of(one).seconds for one in trials]
    estimates = {one.index: replace(new.of(one), seconds=taken) for one, taken in zip(trials, expected, strict=True)}
    return Eta(trials, estimates, until=until)


def gate_of(eta: Eta, left: float, budget: float | None = None) -> Gate:
    """Of a run with so many seconds left, of a budget of the same if not said."""
    return Gate(eta, until=time.monotonic() + left, on_close=lambda: None, budget=left if budget is None else budget)


def test_a_trial_overdue_after_its_timeout_is_reported_once(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(liveness, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(liveness, "LATE_SECONDS", 0.2)
    trials, said = timed(2), io.StringIO()
    eta = eta_of(trials)
    progress = RunProgress(trials, eta, Console(file=said), names=descriptions(trials))
    writer = StoreWriter(Store(str(tmp_path)), lambda planned, records: None)
    with Liveness(trials, Gate(eta, until=None, on_close=lambda: None), progress, writer):
        progress.started(trials[1])
        time.sleep(1.0)
    writer.close()
    (line,) = said.getvalue().splitlines()
    assert line.startswith(
        "context_length 32: 0 s after its start, with a timeout of 0.2 s, its worker does not answer"
    )


def wait_inside(watched: Liveness, gate: Gate, progress: RunProgress, running: PlannedTrial) -> None:
    with handled([signal.SIGINT], gate.interrupt), watched:
        progress.started(running)
        time.sleep(30)


def test_a_run_says_once_that_its_time_is_over_and_interrupts_what_runs_soon_after(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(liveness, "LOOK_SECONDS", 0.05)
    trials, said = timed(2), io.StringIO()
    eta = eta_of(trials)
    progress = RunProgress(trials, eta, Console(file=said), names=descriptions(trials))
    writer = StoreWriter(Store(str(tmp_path)), lambda planned, records: None)
    gate = gate_of(eta, 0.1, budget=10.0)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        wait_inside(Liveness(trials, gate, progress, writer), gate, progress, trials[0])
    assert 0.5 <= time.monotonic() - began < 5
    writer.close()
    words = r"the time for the run is over; 1 trial may end within \d+ ms: context_length 16\n"
    assert re.fullmatch(words, said.getvalue())
    gate.account_for(trials, [trials[0]])
    assert gate.is_cut and gate.cut == [trials[0]] and gate.kept_out == [trials[1]]


def test_ctrl_c_before_the_end_of_the_time_stays_an_interruption() -> None:
    gate = gate_of(eta_of(timed(1)), -1, budget=0.0)
    gate.interrupt(signal.SIGINT, None)
    gate.close_as_time_is_over()
    assert gate.closed and not gate.is_cut


def test_no_more_time_is_left_than_until_the_end() -> None:
    trials = timed(2)
    assert eta_of(trials, 100, 100).seconds_left() == pytest.approx(200, abs=1)
    eta = eta_of(trials, 100, 100, until=time.monotonic() + 150)
    gate = gate_of(eta, 150)
    assert gate.admits(trials[0]) and not gate.admits(trials[1])
    assert eta.seconds_left() == pytest.approx(150, abs=1)
    gate.keep_out(trials[1])
    assert eta.seconds_left() == pytest.approx(100, abs=1)


class LastFirst:
    """Chooses the last trial left, and withdraws what does not begin."""

    def __init__(self) -> None:
        self.likely: list[int] = []
        self.withdrawn: list[int] = []

    def choose(self, left: Collection[int]) -> int | None:
        *self.likely, chosen = sorted(left) or [None]
        return chosen

    def withdraw(self, position: int) -> None:
        self.withdrawn.append(position)

    def learn_trial(self, position: int, records: Sequence[Record]) -> None:
        raise AssertionError("no trial ends here")


def test_any_chooser_decides_the_order_and_hears_of_what_does_not_begin() -> None:
    from lmsweep.orchestrator.running.tune_runner import PlanSearcher

    trials, chooser = timed(3, slots=2), LastFirst()
    searcher = PlanSearcher(trials, gate=gate_of(eta_of(trials, 100, 1000, 100), 250), search=chooser)
    first, second = searcher.suggest("a"), searcher.suggest("b")
    assert first and (first["position"], first["likely"]) == (2, [0, 1])
    assert second and (second["position"], second["likely"]) == (0, [])
    assert chooser.withdrawn == [1] and searcher.suggest("c") is None
    for name in "ab":
        searcher.on_trial_complete(name)
    assert searcher.suggest("c") == PlanSearcher.FINISHED


def test_a_trial_that_does_not_fit_behind_another_begins_if_that_one_ends_early() -> None:
    from lmsweep.orchestrator.running.tune_runner import PlanSearcher

    trials = timed(2)
    eta = eta_of(trials, 100, 100)
    gate = gate_of(eta, 150)
    searcher = PlanSearcher(trials, gate=gate)
    first = searcher.suggest("a")
    assert first and first["position"] == 0
    eta.started(trials[0])
    assert searcher.suggest("b") is None and not gate.kept_out
    eta.ended(trials[0], None)
    gate.ended(trials[0])
    searcher.on_trial_complete("a")
    second = searcher.suggest("b")
    assert second and second["position"] == 1
    searcher.on_trial_complete("b")
    assert searcher.suggest("c") == PlanSearcher.FINISHED and not gate.kept_out
