"""What a message says to install can be pasted: it names packages, for the Python that runs, and never lmsweep, whose
name is on no index and free for anybody."""

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from lmsweep.trials.spec import installing as remedies
from lmsweep.trials.spec.installing import install_command, install_extra
from tests.docs.test_docs import PAGES
from tests.support.command import ROOT
from tests.support.product import files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.mark.slow
def test_the_command_of_an_extra_succeeds_when_pasted() -> None:
    """Offline: what it names is installed here, so pip has nothing to fetch, but reads every word."""
    command = install_extra("figures")
    pytest.importorskip("matplotlib")
    figures = PROJECT["optional-dependencies"]["figures"]
    assert shlex.split(command) == [sys.executable, "-m", "pip", "install", *figures]
    own = os.environ | {"PIP_NO_INDEX": "1"}
    done = subprocess.run(command, shell=True, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "already satisfied: matplotlib" in done.stdout, done.stderr


def test_an_environment_without_pip_uses_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as nowhere:
        nowhere.setattr(sys, "path", [])
        command = install_command("peft>=0.17")
    assert command == f"uv pip install --python {sys.executable} 'peft>=0.17'"


@pytest.mark.parametrize("name", ["", *PROJECT["optional-dependencies"]])
def test_what_is_installed_names_the_same_requirements_as_the_checkout(name: str) -> None:
    ours = [Requirement(one) for one in remedies.of_checkout(name)]
    assert ours and [Requirement(one) for one in remedies.of_installed(name)] == ours


BY_HAND = re.compile(r"\b(?:pip3?|pipx|conda) install\b|\blmsweep\[")


def test_no_message_writes_an_installer_by_hand() -> None:
    """Docstrings, which no user sees, may."""
    for path in (one for one in files() if BY_HAND.search(one.read_text("utf-8"))):
        nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
        plain = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        texts = [one.value for one in nodes if isinstance(one, ast.Constant) and id(one) not in plain]
        assert not [text for text in texts if BY_HAND.search(str(text))], path


FOLDERS = ("deploy", "examples", "orchestrator/sweeps", ".github")
FILES = [*PAGES, *ROOT.glob("*.yaml"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*"))]
INSTALL = re.compile(r"pip3? install ([^`#&|)\n]*)")
VALUED = {"-c", "-r", "-e", "--python"}


@pytest.mark.parametrize("path", filter(Path.is_file, FILES), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_installs_lmsweep_by_its_name(path: Path) -> None:
    """It is installed from a folder; another name is that of a package that lmsweep requires, or of a tool."""
    text = path.read_text("utf-8", "replace")
    assert not re.findall(r"\blmsweep\[\w", text)
    known = {Requirement(one).name for needs in PROJECT["optional-dependencies"].values() for one in needs}
    known |= {Requirement(one).name for one in PROJECT["dependencies"]} | {"boto3", "pre-commit", "build", "twine"}
    for command in INSTALL.findall(text):
        words = iter(shlex.split(command.split("'  ")[0]))
        for word in words:
            if word in VALUED:
                next(words)
            elif not word.startswith(("-", ".", "/", "~", "$", "dist/")):
                assert word.endswith("...]") or Requirement(word).name in known, command
