"""What a message says to install can be pasted: it names packages, for the Python that runs, and never lmsweep, whose
name is on no index and free for anybody."""

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from lmsweep.trials.spec import installing as remedies
from lmsweep.trials.spec.installing import install_command, install_extra
from tests.docs.test_docs import PAGES
from tests.support.command import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PRODUCT = [path for name in ("trials", "orchestrator", "analysis") for path in (ROOT / name).rglob("*.py")]


def test_the_command_of_an_extra_succeeds_when_pasted() -> None:
    """Offline: what it names is installed here, so pip has nothing to fetch, but reads every word."""
    command = install_extra("figures")
    pytest.importorskip("matplotlib")
    assert shlex.split(command) == [
        sys.executable,
        "-m",
        "pip",
        "install",
        *PROJECT["optional-dependencies"]["figures"],
    ]
    done = subprocess.run(
        command, shell=True, env=os.environ | {"PIP_NO_INDEX": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "already satisfied: matplotlib" in done.stdout, done.stderr


def test_an_environment_without_pip_uses_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedies, "find_spec", lambda name: None)
    assert install_command("peft>=0.17") == f"uv pip install --python {sys.executable} 'peft>=0.17'"


@pytest.mark.parametrize("name", ["", *PROJECT["optional-dependencies"]])
def test_what_is_installed_names_the_same_requirements_as_the_checkout(name: str) -> None:
    ours = [Requirement(one) for one in remedies.of_checkout(name)]
    assert ours and [Requirement(one) for one in remedies.of_installed(name)] == ours


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that a user may see: all but docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    plain = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in plain:
            yield node.lineno, node.value


def test_no_message_writes_an_installer_by_hand() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in PRODUCT
        for line, text in texts(path)
        if re.search(r"\b(pip3?|pipx|conda) install\b|\blmsweep\[", text)
    ]
    assert found == []


FILES = [
    *PAGES,
    *(
        path
        for folder in ("deploy", "examples", "orchestrator/sweeps", ".github")
        for path in (ROOT / folder).rglob("*.*")
    ),
    *ROOT.glob("*.yaml"),
]
INSTALL = re.compile(r"pip3? install ([^`#&|)\n]*)")
VALUED = {"-c", "-r", "-e", "--python"}


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.is_file()], ids=lambda path: str(path.relative_to(ROOT))
)
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
