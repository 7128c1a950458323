"""One trial in this process: whether it fits here, and the line that says how far it is."""

from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lmsweep.orchestrator.planning.memory_budget import budget, why_not
from lmsweep.orchestrator.planning.memory_predictions import SMALL, Predictions
from lmsweep.orchestrator.running.progress import format_seconds
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.quantities import gib

SHOW_SECONDS = 1.0
"""Between two changes of the line: it is written by the process that measures."""


def check_fit(trial: Trial) -> None:
    """Raises RequestError where the trial's predicted memory exceeds what this machine has for it."""
    from lmsweep.trials.bench.fingerprint import fingerprint, present_devices

    if trial.config.device_type not in present_devices():
        return  # the trial will say so
    predictions = Predictions([trial], least=SMALL)
    if predictions.asked:
        say("working out the memory that it will hold; --no-predict goes without", error=True)
    environment = fingerprint(trial.config.device_type)
    name = environment.device_name
    prediction, room = predictions.of(trial, name), budget(trial.config, environment)
    if not (isinstance(prediction, Prediction) and room):
        return
    predictions.settle([(trial, name, room)])
    if reason := why_not(prediction, room, predictions.verdict(trial, name, room)):
        raise RequestError(f"trial: {reason}; --no-predict runs it all the same")


class LiveLine:
    """On a terminal, a line that says for how long the trial has run and what it holds; elsewhere nothing."""

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
        """Takes the line away."""
        self._live.stop()

    def show(self, seconds: float, held: int) -> None:
        """What the line says now."""
        if self._on and seconds - self._shown >= SHOW_SECONDS:
            self._shown = seconds
            words = f"{self._what}: {format_seconds(seconds)} of at most {self._most}, {gib(held)} of the host held"
            self._live.update(Text(words), refresh=True)
