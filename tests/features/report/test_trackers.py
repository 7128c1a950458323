"""The blocks of docs/sharing.md that send results to experiment trackers, run with the real libraries, offline.

They need `pip install '.[trackers]'`, which `make test-all` does: wandb, mlflow-skinny or mlflow, and tensorboard.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

import lmsweep
from tests.docs.test_docs import blocks
from tests.support.command import ROOT

STORE = "h200-devices"


def block(name: str) -> str:
    (found,) = (one.text for one in blocks("python") if one.page == "sharing.md" and name in one.text)
    return found.replace('"results"', f'{STORE!r}, where={{"model": "small", "context_length": "256"}}')


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


@pytest.mark.slow
def test_weights_and_biases_takes_them_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    exec(block("wandb"), {})
    assert len(list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))) == 4


@pytest.mark.slow
def test_mlflow_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    if not find_spec("sqlalchemy"):  # the client alone: mlflow writes to mlflow.db
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    exec(block("mlflow"), {})
    runs = mlflow.search_runs(output_format="list")
    assert {run.data.params["model"] for run in runs} == {"small"} and len(runs) == 4
    assert all(run.data.metrics["step.device_time"] > 0 for run in runs)


@pytest.mark.slow
def test_tensorboard_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    exec(block("SummaryWriter"), {})
    folders = {path.parent for path in (tmp_path / "runs").rglob("events*") if path.parent.name != "runs"}
    assert len(folders) == 4
    for folder in folders:
        events = EventAccumulator(str(folder)).Reload()
        assert events.Scalars("step.device_time")[0].value > 0


def test_the_extra_names_the_libraries_of_the_page() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'trackers = ["wandb>=' in text and "mlflow" in text and "tensorboard" in text
