"""How each library takes a trial. What a library reads from the environment (WANDB_PROJECT, MLFLOW_TRACKING_URI) stays
its own matter. To add one, add a function here, or register one from a package of yours."""

import os
from importlib import import_module
from typing import Any

from lmsweep.orchestrator.features.trackers.sending import Tracker
from lmsweep.orchestrator.features.trackers.summaries import Summary, summaries
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.installing import install_extra
from lmsweep.trials.spec.suggestions import choices


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
    found, to = summaries(store), TRACKERS[tracker]()
    for one in found:
        to.send(one)
    return len(found)


def _fields(trial: Summary) -> dict[str, Any]:
    return trial.config | {f"status.{workload}": status for workload, status in trial.status.items()}


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise RequestError(f"--tracker: {name} cannot be imported ({error}); {install_extra('trackers')}") from error
