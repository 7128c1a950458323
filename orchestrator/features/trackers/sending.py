"""How each library takes a trial, in a thread beside the run: a slow server delays no trial, and one that fails ends no
run. What a library reads from the environment (WANDB_PROJECT, MLFLOW_TRACKING_URI) stays its own matter. To add one,
add a function here, or register one from a package of yours."""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from queue import Queue
from threading import Thread
from typing import Any

from lmsweep.analysis.data.load import described, of_stored_rows
from lmsweep.orchestrator.features.trackers.summaries import Summary, summaries, summaries_of
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.installing import install_extra
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.store.parquet_file import table_of

PATIENCE = 120.0
"""Seconds that a run which has ended waits for a tracker."""


class Tracker:
    """Within its context, takes each trial of a run and sends it from a thread; at its end says what was not sent."""

    def __init__(self, name: str, send: Callable[[Summary], None]) -> None:
        """send: raises whatever its library raises."""
        self.send = send
        self._name = name
        self._waiting: Queue[tuple[str, Sequence[Record]] | None] = Queue()
        self._failed: list[str] = []
        self._sent = 0
        self._given = 0
        self._thread = Thread(target=self._work, name=f"tracker {name}", daemon=True)

    def __enter__(self) -> "Tracker":
        self._thread.start()
        return self

    def __call__(self, name: str, records: Sequence[Record]) -> None:
        """Send a trial. name: that of the trial in its run."""
        self._given += 1
        self._waiting.put((name, records))

    def __exit__(self, *_: object) -> None:
        self._waiting.put(None)
        self._thread.join(PATIENCE)
        if self._sent < self._given:
            why = self._failed[0] if self._failed else f"it did not answer within {PATIENCE:g} s"
            say(
                f"lmsweep: {self._name} has {self._sent} of {self._given} trials: {why}. The store has all of them; "
                f"to send it: python -c 'import lmsweep; lmsweep.track(STORE, \"{self._name}\")'",
                error=True,
            )

    def _work(self) -> None:
        while item := self._waiting.get():
            name, records = item
            try:
                frame = of_stored_rows(described(table_of(records)), pooled=True, flops="model")
                for one in summaries_of(frame):
                    self.send(one._replace(name=name))
                self._sent += 1
            except Exception as error:  # noqa: BLE001 - whatever a library raises must not end the run
                self._failed.append(f"{type(error).__name__}: {error}")


def wandb() -> Tracker:
    """Each trial is a run of the project `lmsweep`, in the group of its sweep."""
    library = _library("wandb")
    # It would print, watch the machine, and take this process's output for that of each trial.
    quiet = library.Settings(console="off", silent=True, x_disable_stats=True)
    project = os.environ.get("WANDB_PROJECT", "lmsweep")

    def send(trial: Summary) -> None:
        with library.init(
            project=project, group=trial.sweep, name=trial.name, config=_fields(trial), tags=trial.flags, settings=quiet
        ) as run:
            run.log(trial.metrics)

    return Tracker("wandb", send)


def mlflow() -> Tracker:
    """Each trial is a run of the experiment with the name of its sweep."""
    library = _library("mlflow")

    def send(trial: Summary) -> None:
        library.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", trial.sweep))
        with library.start_run(run_name=trial.name):
            library.log_params(_fields(trial))
            library.log_metrics(trial.metrics)
            library.set_tags(dict.fromkeys(trial.flags, "true"))

    return Tracker("mlflow", send)


def tensorboard() -> Tracker:
    """Each trial is a folder in `runs/SWEEP`, for the tab HPARAMS. Ray brings the writer: it needs no TensorBoard."""
    library = _library("tensorboardX")

    def send(trial: Summary) -> None:
        with library.SummaryWriter(os.path.join("runs", trial.sweep)) as writer:
            writer.add_hparams(_fields(trial), trial.metrics, name=trial.name.replace("/", "-"))

    return Tracker("tensorboard", send)


TRACKERS = {"wandb": wandb, "mlflow": mlflow, "tensorboard": tensorboard}


def track(store: str, tracker: str) -> int:
    """Send each trial of a store to a tracker: `wandb`, `mlflow` or `tensorboard`. Return how many there are.

    Raises RequestError, a ValueError, without a store, such a tracker or its library, and what the library raises.
    """
    if tracker not in TRACKERS:
        raise RequestError(f"there is no tracker {tracker}{choices(tracker, TRACKERS)}")
    trials, to = summaries(store), TRACKERS[tracker]()
    for one in trials:
        to.send(one)
    return len(trials)


def _fields(trial: Summary) -> dict[str, Any]:
    return trial.config | {f"status.{workload}": status for workload, status in trial.status.items()}


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise RequestError(f"--tracker: {name} cannot be imported ({error}); {install_extra('trackers')}") from error
