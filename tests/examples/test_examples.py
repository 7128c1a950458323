"""The examples work: `check` finds no error in them, `init` finds their code, and their trials are measured."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from lmsweep.orchestrator.features.init.discover import discover
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.code.digest import code_folder
from tests.support.command import lmsweep

pytestmark = pytest.mark.usefixtures("one_core")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/lmsweep.yaml"))


def needs(name: str) -> None:
    if name == "hugging_face" and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")


def test_each_example_has_a_sweep_and_a_readme_with_its_commands() -> None:
    assert len(NAMES) == 4
    for name in NAMES:
        assert load_sweep(str(EXAMPLES / name / "lmsweep.yaml")).trials
        assert "lmsweep run lmsweep.yaml" in (EXAMPLES / name / "README.md").read_text("utf-8")


@pytest.mark.slow  # tests/docs/test_commands.py checks the user's code
@pytest.mark.parametrize("name", NAMES)
def test_check_finds_no_error_in_an_example(name: str) -> None:
    needs(name)
    done = lmsweep("check", EXAMPLES / name / "lmsweep.yaml", "--timeout", "3m")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [name for name in NAMES if name != "hugging_face"])
def test_init_finds_the_model_of_an_example(name: str) -> None:
    trials = load_sweep(str(EXAMPLES / name / "lmsweep.yaml")).trials
    written = {one.config.model_code.partition(":")[0] for one in trials if one.config.model_code}
    found = discover(code_folder(EXAMPLES / name)).of("model")
    assert {found[0].reference.partition(":")[0]} == written


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_trial_of_an_example_is_measured(name: str, tmp_path: Path) -> None:
    needs(name)
    store = tmp_path / "results"
    short = ("--set", "measure_steps=2", "--set", "warmup_steps=1")
    done = lmsweep("run", EXAMPLES / name / "lmsweep.yaml", "--store", store, *short)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"\d error\b|\(error\)", lmsweep("table", store).stdout)


def test_the_kernel_in_triton_says_that_it_needs_a_gpu() -> None:
    assert len(load_sweep(str(EXAMPLES / "triton_attention" / "attention.yaml")).trials) == 8
    spec = importlib.util.spec_from_file_location("kernel", EXAMPLES / "triton_attention" / "kernel.py")
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    with pytest.raises(RuntimeError, match="needs a GPU"):
        kernel.attend(*(torch.ones(1, 16, 16) for _ in "qkv"), True)
