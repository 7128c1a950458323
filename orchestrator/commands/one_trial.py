"""Helps `lmsweep trial`: checks whether the trial fits here, and shows a live line while it runs."""

import os
import sys
from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lmsweep.orchestrator.planning.memory_budget import budget, why_too_large
from lmsweep.orchestrator.planning.memory_predictions import SMALL, FitQuestion, Predictions
from lmsweep.orchestrator.terminal import format_seconds, say
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.isolation.virtual_environment import SoftwareError, interpreter_with, is_inside
from lmsweep.trials.machine.interpreter import command, environment
from lmsweep.trials.results.environment import expected_with
from lmsweep.trials.results.record import Attempt, Record, Row
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.rules.combination_rules import why_not

SHOW_SECONDS = 1.0
"""Seconds between two updates of the line; they are few, as the measuring process itself writes it."""


def continue_with(software: str | None) -> None:
    """Replace this process by the same command in the software's environment. Raises SoftwareError."""
    if software is None or is_inside(software):
        return
    python = interpreter_with(software, lambda words: say(words, error=True))
    words = command("lmsweep.orchestrator.cli", *sys.argv[1:], python=python)
    sys.stdout.flush()
    os.execve(python, words, environment())


def check_possible(trial: Trial) -> None:
    """Raise RequestError if no machine runs any of its workloads."""
    reasons = [why_not(trial.config, workload) for workload in trial.workloads]
    if all(reasons):
        raise RequestError(f"trial: {reasons[0]}")


def wrong_in(records: Sequence[Record]) -> str | None:
    """Return what the trial found wrong with its configuration, such as a target that no layer has; None if nothing."""
    last = [record.error.strip().rpartition("\n")[2] for record in records if record.error]
    raised = f"{RequestError.__module__}.{RequestError.__name__}: "
    return next((line.removeprefix(raised) for line in last if line.startswith(raised)), None)


def check_fit(trial: Trial) -> None:
    """Raise RequestError if the trial's predicted memory exceeds what this machine has for it."""
    from lmsweep.trials.bench.fingerprint import fingerprint, present_devices

    if trial.config.device_type not in present_devices():
        return  # running it reports that
    predictions = Predictions([trial], least=SMALL)
    if predictions.asked:
        say("predicting its memory; --no-predict skips it", error=True)
    environment = fingerprint(trial.config.device_type)
    name = environment.device_name
    prediction, room = predictions.of(trial, name), budget(trial.config, environment)
    if not (isinstance(prediction, Prediction) and room):
        return
    question = FitQuestion(trial=trial, device_name=name, budget=room)
    predictions.settle([question])
    if reason := why_too_large(prediction, room, predictions.verdict(question)):
        raise RequestError(f"trial: {reason}; --no-predict runs it anyway")


def unmade_rows(trial: Trial, error: SoftwareError) -> list[Row]:
    """Return the rows of a trial whose environment cannot be made."""
    from lmsweep.trials.bench.fingerprint import fingerprint, present_devices

    device = trial.config.device_type
    here = fingerprint(device if device in present_devices() else "cpu")
    attempt, expected = Attempt.begin(trial), expected_with(here, trial.config.software)
    return [attempt.failure(name, error.status, str(error), expected) for name in trial.workloads]


class LiveLine:
    """A line on the terminal with the trial's running time and host memory; without a terminal it prints nothing."""

    def __init__(self, trial: Trial) -> None:
        console = Console(stderr=True)
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._on = console.is_terminal
        self._what = ", ".join(trial.workloads)
        self._most = format_seconds(trial.config.timeout_seconds)
        self._shown = -SHOW_SECONDS

    def __enter__(self) -> Self:
        if self._on:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the line."""
        self._live.stop()

    def show(self, seconds: float, held: int) -> None:
        """seconds: since the start. held: bytes of host memory."""
        if self._on and seconds - self._shown >= SHOW_SECONDS:
            self._shown = seconds
            words = f"{self._what}: {format_seconds(seconds)} of at most {self._most}, {gib(held)} of host memory"
            self._live.update(Text(words), refresh=True)
