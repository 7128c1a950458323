"""The user's project and what it imports need not be installed: a message names what is missing, and the command."""

import shlex
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

import pytest

from lmsweep.trials.code.finding import Question
from lmsweep.trials.code.missing_packages import install_words, missing_packages
from lmsweep.trials.code.project import ProjectFinder
from lmsweep.trials.code.source import check_reference
from lmsweep.trials.numerics.check_code import answer
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.reference import Code
from tests.support.clean_process import in_clean_process

COURSE = """
[project]
name = "cs336-systems"
version = "26.1.1"
requires-python = ">=3.12,<3.14"
dependencies = ["cs336-basics", "not-einops>=0.8", "torch~=2.11.0", "not-git; python_version < '4'"]
[project.entry-points."lmsweep.models"]
evil = "os:system"
[tool.uv.sources]
cs336-basics = { path = "../assignment1", editable = true }
not-git = { git = "https://example.org/not-git" }
"""
LOSS = "import torch\n\ndef loss(logits, targets):\n    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), "
LOSS += "targets.flatten())\n"


@pytest.fixture
def code(tmp_path: Path) -> Code:
    """The course's template: a package that asks for the version of the project that it belongs to."""
    (tmp_path / "pyproject.toml").write_text(COURSE)
    package = tmp_path / "cs336_systems"
    package.mkdir()
    (package / "__init__.py").write_text('import importlib.metadata\nv = importlib.metadata.version("cs336-systems")\n')
    (package / "loss.py").write_text(LOSS)
    return Code(folder=str(tmp_path))


def said(code: Code, reference: str) -> str:
    """What is wrong with a loss."""
    question = Question(field="loss", config=TrialConfig(model="tiny", loss=reference), workloads=("timing",))
    return "\n".join(one.found for one in in_clean_process(answer, question, code, 60) if one.kind == "wrong")


def test_the_version_in_pyproject_stands_in_for_a_project_that_is_not_installed(code: Code) -> None:
    assert said(code, "cs336_systems.loss:loss") == ""
    Path(code.folder, "pyproject.toml").unlink()
    assert said(code, "cs336_systems.loss:loss").startswith("cs336_systems/__init__.py:2: PackageNotFoundError")


def test_a_stand_in_has_the_projects_metadata_and_registers_nothing(code: Code, monkeypatch) -> None:
    monkeypatch.setattr("sys.meta_path", [*__import__("sys").meta_path, ProjectFinder(code)])
    assert version("cs336_systems") == version("CS336-Systems") == "26.1.1"
    assert version("torch") != "26.1.1"
    assert not entry_points(group="lmsweep.models", name="evil")
    Path(code.folder, "pyproject.toml").write_text('[project]\nname = "cs336-systems"\ndynamic = ["version"]\n')
    assert version("cs336-systems") == "0+unknown"
    with pytest.raises(PackageNotFoundError):
        version("cs336-basics")


def test_all_packages_that_are_missing_are_named_at_once_with_the_command(code: Code) -> None:
    package = Path(code.folder, "cs336_systems")
    (package / "loss.py").write_text(f"from . import parts\nimport not_einops, os, torch\n{LOSS}")
    optional = "try:\n    import not_needed\nexcept ImportError:\n    not_needed = None\n"
    (package / "parts.py").write_text(f"{optional}import cs336_basics.model\nimport not_git.x, not_declared, numpy\n")
    found = said(code, "cs336_systems.loss:loss")
    assert found.startswith("cs336_systems/parts.py:5: ModuleNotFoundError: No module named 'cs336_basics'; ")
    assert "not installed here: cs336_basics, not_declared, not_einops, not_git; install them: " in found
    for words in (" -e ", "/assignment1 ", "'not-einops>=0.8'", "'not-git @ git+https://example.org/not-git'"):
        assert words in found
    words = shlex.split(found.rpartition("; ")[2])
    assert "not_needed" not in found and not [word for word in words if word.startswith("torch")]


def test_a_module_that_lies_elsewhere_in_the_folder_is_not_to_be_installed(code: Code) -> None:
    (Path(code.folder) / "research").mkdir()
    (Path(code.folder) / "research" / "helpers.py").touch()
    words = install_words(["helpers"], code)
    assert words == "helpers is research/helpers.py: give the folder that your code imports from by --code research"


def test_syntax_of_a_newer_python_is_called_so(code: Code) -> None:
    Path(code.folder, "new.py").write_text("def f[T](: ...\n")
    Path(code.folder, "pyproject.toml").write_text('[project]\nname = "x"\nrequires-python = ">=3.99"\n')
    with pytest.raises(RequestError, match=r"new.py:1: SyntaxError: .*; pyproject.toml asks for Python >=3.99, and "):
        check_reference("new:f", code)


def test_what_only_some_machines_import_is_not_called_missing(code: Code) -> None:
    file = Path(code.folder, "later.py")
    file.write_text(
        "if False:\n    import not_now\n\ndef f():\n    import not_then\n\nwith open('x') as y:\n    import z9\n"
    )
    assert missing_packages([file], code) == ["z9"]


def test_what_the_packages_on_the_way_to_a_file_import_is_missing_too(code: Code) -> None:
    deep = Path(code.folder, "cs336_systems", "deep")
    deep.mkdir()
    (deep / "__init__.py").write_text("import z10\n")
    (deep / "loss.py").write_text("import z9\n")
    assert missing_packages([deep / "loss.py"], code)[-2:] == ["z10", "z9"]


def test_a_part_that_is_compiled_when_the_project_is_installed_is_called_so(code: Code) -> None:
    Path(code.folder, "compiled").mkdir()
    Path(code.folder, "compiled", "__init__.py").write_text("from . import kernels\ndef loss(logits, targets): ...\n")
    found = said(code, "compiled:loss")
    assert "compiled has no kernels.py, so it is probably compiled when the project is installed: " in found
    assert found.endswith(f" install -e {code.folder}")
