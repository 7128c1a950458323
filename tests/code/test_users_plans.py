"""What `plan` and `best` say of models that are the user's own."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lmsweep.orchestrator.sweep.sweep import load_sweep, parse_overrides
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.store.store import Store
from tests.support.command import answer_here, lmsweep_here, write_sweep
from tests.support.trial_here import run_here

pytestmark = pytest.mark.usefixtures("one_core")

FOLDER = Path(__file__).parent / "folder"
OWN: dict[str, Any] = {"name": "mine", "call": "zoo.py:NanoGPT", "size": "tiny"}
CUDA: dict[str, Any] = {"device": "cuda", "vocab_size": 64, "context_length": 16, "batch_size": 2}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(FOLDER)


@pytest.mark.slow
def test_the_time_and_price_of_an_own_model_are_unknown_until_it_has_been_measured(tmp_path: Path):
    sweep = write_sweep(tmp_path, "s", model=["tiny", OWN], **CUDA)
    command = ["plan", sweep, "--for", "H100", "--no-predict", "--price", "H100=36", "--store", tmp_path / "none"]
    found = json.loads(lmsweep_here(*command, "--format", "json"))
    ours, own = found["trials"]
    assert ours["expected_seconds"] > 0.5
    words = "how long your own code takes on H100 SXM is unknown until it has been measured"
    assert (own["expected_seconds"], own["expected_seconds_reason"]) == (None, words)
    names = ("expected_seconds", "expected_dollars", "expected_dollars_reason")
    assert [found[name] for name in names] == [None, None, words]
    text = lmsweep_here(*command)
    assert f"\ntime ?: {words}" in text
    assert "dollars, without 1 trial of unknown time\n" in text
    alone = lmsweep_here(*command[:1], write_sweep(tmp_path, "s", model=[OWN], **CUDA), *command[2:])
    assert alone.startswith("s: 1 trial, 1 to run, in unknown time\n")


def test_a_compiled_model_of_ones_own_needs_between_its_weights_and_the_step_that_is_not_compiled(tmp_path: Path):
    """A GPU that lacks even the weights is left out, one that may do runs."""
    sweep = write_sweep(tmp_path, model=[OWN], **CUDA)
    asked = ["plan", sweep, "--set", "compile=block", "--store", tmp_path / "none"]
    (trial,) = json.loads(lmsweep_here(*asked, "--for", "H100", "--format", "json"))["trials"]
    assert (trial["action"], trial["predicted_peak_bytes"]) == ("run", None)
    assert trial["predicted_peak_reason"].endswith("iB, from the step without torch.compile")
    (trial,) = json.loads(lmsweep_here(*asked, "--for", "770MiB", "--format", "json"))["trials"]
    assert trial["action"] == "predicted_oom"
    assert "its peak is at least" in trial["reason"] and "from the step without torch.compile" in trial["reason"]


def test_the_best_of_results_of_an_own_model_is_printed(tmp_path: Path):
    shape = {"vocab_size": 64, "context_length": 16, "batch_size": 1, "warmup_steps": 1, "measure_steps": 3}
    config = TrialConfig(model="mine-tiny", model_code="zoo.py:NanoGPT", **asdict(SIZES["tiny"]), **shape)
    rows = run_here(Trial(config=config, workloads=("timing",), sweep="s", code=code_folder(str(FOLDER))))
    Store(str(tmp_path / "store")).keep(rows)
    done = answer_here("best", tmp_path / "store", "--max-batch")
    assert done.returncode == 0, done.stderr
    assert "Best for tokens/s" in done.stdout
    assert "it needs your own code, which is not available" in done.stdout


@pytest.mark.parametrize(
    ("models", "option"),
    [
        (["tiny", OWN], "--set model=tiny"),
        ([OWN, {**OWN, "name": "other", "call": "zoo.py:Encoder"}], "--set model=zoo.py:NanoGPT"),
        ([{**OWN, "args": {"theta": 1}}, {**OWN, "args": {"theta": 2}}], "--set model_args.theta=1"),
    ],
    ids=str,
)
def test_best_names_a_choice_between_models_that_the_sweep_accepts(models: list[Any], option: str, tmp_path: Path):
    sweep = write_sweep(tmp_path, model=models, **CUDA | {"device": "cpu"})
    done = answer_here("best", sweep, "--store", tmp_path / "none")
    assert done.returncode == 2
    assert f"choose one, such as {option}" in done.stderr
    assert len(load_sweep(str(sweep), parse_overrides([option.removeprefix("--set ")])).trials) >= 1
