"""A reference leads to what the user's own code defines, and to nothing else."""

from pathlib import Path

import pytest

from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.spec.config import RequestError

MODEL = """
import os, torch
from os import system
from subprocess import Popen as Start
from torch import nn
from torch.nn import Linear
evil = os.system

class Model(nn.Module):
    class Inner(nn.Module):
        pass

def make(vocab_size):
    return Model()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A code folder with one package, which is the current folder."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "model.py").write_text(MODEL)
    (tmp_path / "loose.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(reference: str, field: str = "model", **options: str) -> str | None:
    """The reference as a configuration of a sweep has it."""
    path = Path("s.yaml")
    model = "" if field == "model" else "model: tiny, "
    path.write_text(f"name: s\ngrids:\n  - workloads: [timing]\n    fixed: {{{model}{field}: {reference!r}}}\n")
    (trial,) = load_sweep(str(path), **options).trials
    assert trial.code is not None
    return trial.config.references[0]


@pytest.mark.parametrize(
    "reference",
    [
        "mine.model:Model",
        "mine.model:make",
        "mine.model:Model.Inner",
        "./loose.py:Model",
        "loose:make",
        "mine/model.py:make",
    ],
)
def test_what_the_code_folder_defines_may_be_named_by_module_or_file(folder: Path, reference: str) -> None:
    assert read(reference) == reference.removeprefix("./")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("os:system", "os is part of Python"),
        ("subprocess:Popen", "subprocess is part of Python"),
        ("builtins:eval", "builtins is part of Python"),
        ("pickle:loads", "pickle is part of Python"),
        ("torch:load", "torch is an installed package"),
        ("lmsweep.trials.bench.run_trial:run_here", "lmsweep is an installed package"),
        ("mine.model:os.system", "os is imported from os"),
        ("mine.model:system", "system is imported from os"),
        ("mine.model:Start", "Start is imported from subprocess"),
        ("loose:Linear", "Linear is imported from torch"),
        ("../outside.py:f", "leads out of the code folder"),
        ("/etc/passwd.py:f", "there is no file /etc/passwd.py"),
        ("link.py:f", "leads out of the code folder"),
        (".venv/lib/site-packages/evil.py:f", "leads out of the code folder"),
        ("mine.model:__import__('os')", "is not a reference"),
        ("mine.modl:Model", "did you mean mine"),
        ("mine.model:Modle", "did you mean Model?"),
    ],
)
def test_a_sweep_from_a_stranger_can_name_nothing_else(folder: Path, reference: str, words: str) -> None:
    outside = folder.parent / "outside.py"
    outside.write_text("def f(): ...")
    (folder / "link.py").symlink_to(outside)
    installed = folder / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "evil.py").write_text("def f(): ...")
    with pytest.raises(RequestError, match=r".") as caught:
        read(reference)
    assert words in str(caught.value)


def test_a_reference_without_a_sentence_about_a_syntax_error_names_its_line(folder: Path) -> None:
    (folder / "broken.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(RequestError, match=r"broken\.py:2: SyntaxError"):
        read("broken:f")
