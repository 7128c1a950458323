"""Experiment trackers take each trial of a run as it ends, or those of a store: the real libraries, offline.

They need `pip install '.[trackers]'`, which `make test-all` does: wandb, mlflow-skinny or mlflow, and tensorboard.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

import lmsweep
from tests.support.command import answer_here, write_sweep
from tests.support.command import lmsweep as command
from tests.support.installed import install
from tests.support.made_up_results import Attempts, config

STORE = "h200-devices"


def test_a_trial_is_a_configuration_numbers_statuses_and_flags() -> None:
    found = lmsweep.summaries(STORE)
    assert len(found) == 24 == len({one.name for one in found})
    (one,) = lmsweep.summaries(STORE, where={"model": "large", "context_length": "1024", "precision": "bf16",
                                             "compile": "block"})  # fmt: skip
    assert one.config["model"] == "large" and one.config["device_name"] == "NVIDIA H200"
    assert one.metrics["step.device_time"] == pytest.approx(62.0e-3, rel=0.01) and one.status == {"timing": "ok"}
    assert "workload" not in one.config and one.config["context_length"] == 1024
    assert one.metrics["step.device_time_low"] < one.metrics["step.device_time"] < one.metrics["step.device_time_high"]
    assert all(type(value) in (str, int, float, bool) for trial in found for value in trial.config.values())
    assert "large, context_length 1024, bf16, compile block" in {trial.name for trial in found}
    assert one.sweep == "devices"


def runs_of(name: str, folder: Path) -> list[str]:
    """The names of the runs that a library keeps in the folder, each with its time and its status."""
    if name == "wandb":  # until `wandb sync`, in a file of its own
        return ["" for _ in (folder / "wandb").glob("offline-run-*/*.wandb")]
    if name == "mlflow":
        import mlflow

        runs = mlflow.search_runs(output_format="list", search_all_experiments=True)
        assert all(run.data.metrics["step.time"] > 0 and run.data.params["status.timing"] == "ok" for run in runs)
        return [run.info.run_name for run in runs]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = sorted({path.parent for path in (folder / "runs").glob("*/*/events*")})
    assert all(EventAccumulator(str(one)).Reload().Scalars("step.time")[0].value > 0 for one in found)
    return [one.name for one in found]


NAMES = ("wandb", "mlflow", "tensorboard")


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to write into, where no library looks for a server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the client alone: mlflow writes to mlflow.db
    if find_spec("mlflow"):
        import mlflow

        where = f"sqlite:///{tmp_path}/mlflow.db" if find_spec("sqlalchemy") else (tmp_path / "mlruns").as_uri()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", where)
        mlflow.set_tracking_uri(where)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_sends_each_trial_as_it_ends(name: str, offline: Path) -> None:
    pytest.importorskip(name)
    done = command("run", write_sweep(offline), "--tracker", name)
    assert done.returncode == 0, done.stderr
    runs = runs_of(name, offline)
    assert len(runs) == 2
    assert name == "wandb" or sorted(runs) == ["context_length 16", "context_length 32"]
    assert len(lmsweep.load("results")["trial_id"].unique()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_store_is_sent(name: str, offline: Path) -> None:
    pytest.importorskip(name)
    attempts = Attempts(offline / "results")
    for length in (128, 256):
        attempts.step(config(context_length=length), 0.1)
    assert lmsweep.track("results", name) == 2 == len(runs_of(name, offline))


@pytest.mark.parametrize("name", ["wandbb", "ada"])
def test_a_tracker_that_is_not_there_is_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    done = answer_here("run", "quick", "--store", tmp_path / "results", "--tracker", name)
    assert done.returncode == 2 and f"--tracker {name}: there is no such tracker" in done.stderr
    assert "one of: wandb, mlflow, tensorboard" in done.stderr and not (tmp_path / "results").exists()
    with pytest.raises(ValueError, match=f"there is no tracker {name}"):
        lmsweep.track(STORE, name)


FULL = """
from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.features.trackers.sending import Tracker

def send(trial):
    if "32" in trial.name:
        raise OSError("the disk is full")

def disk():
    return Tracker("disk", send)

record = Feature(name="mine", trackers={"disk": "mine:disk"})
"""


@pytest.mark.slow
def test_a_tracker_of_another_package_that_fails_ends_no_run(tmp_path: Path) -> None:
    path = install(tmp_path, "lmsweep.features", "mine", FULL)
    done = command("run", write_sweep(tmp_path), "--store", tmp_path / "results", "--tracker", "disk", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "disk has 1 of 2 trials: OSError: the disk is full. The store has all of them" in done.stderr
    assert len(lmsweep.load(tmp_path / "results")["trial_id"].unique()) == 2
