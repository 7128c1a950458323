"""The user's project and what it imports need not be installed: a message names what is missing, and the command."""

import shlex
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

import pytest

from lmsweep.orchestrator.features.check.check_code import answer
from lmsweep.orchestrator.features.check.finding import Question
from lmsweep.trials.code.missing_packages import install_words, missing_packages
from lmsweep.trials.code.project import ProjectFinder
from lmsweep.trials.code.source import check_reference
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
    question = Question(field="loss", config=TrialConfig(model="tiny", loss=reference), workloads=("timing",))
    return "\n".join(one.found for one in in_clean_process(answer, question, code, 60) if one.kind == "wrong")


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
    found = install_words(missing_packages([package / "loss.py"], code), code)
    assert "not installed here: cs336_basics, not_einops, not_git; install them: " in found
    assert "not installed here: not_declared, which cs336_systems/parts.py:6 imports; " in found
    for words in (" -e ", "/assignment1 ", "'not-einops>=0.8'", "'not-git @ git+https://example.org/not-git'"):
        assert words in found
    words = shlex.split(found.rpartition("; ")[2])
    assert "not_needed" not in found and not [word for word in words if word.startswith(("torch", "not_"))]


COMPILED = (
    *("causal_conv1d_cuda", "rotary_emb", "xentropy_cuda_lib", "triton_kernels"),
    *("pkg_resources", "apex", "google"),
)
"""Modules whose package has another name: under theirs an index has nothing, or a stranger's package."""


def test_only_packages_that_the_project_or_a_table_of_known_names_names_are_to_be_installed(code: Code) -> None:
    """The name of a module is advised as a package to nobody: at worst the index has a stranger's under it."""
    words = install_words(dict.fromkeys(COMPILED, "mine/model.py:3"), code)
    assert " install " not in words
    for name in COMPILED:
        assert f"not installed here: {name}, which mine/model.py:3 imports; " in words
    known = install_words({"flash_attn": "a.py:1", "cv2": "a.py:2", "yaml": "a.py:3", "triton": "a.py:4"}, code)
    assert shlex.split(known.rpartition(": ")[2])[-4:] == ["opencv-python", "flash-attn", "triton", "pyyaml"]


ADDRESS = "not-one @ git+https://example.org/one"
METADATA = {
    "extras": ("pyproject.toml", '[project]\nname = "x"\noptional-dependencies.a = ["not-one>2"]', "not-one>2"),
    "a group": ("pyproject.toml", '[project]\nname = "x"\n[dependency-groups]\na = ["Not.One"]', "Not.One"),
    "Poetry": ("pyproject.toml", '[tool.poetry]\nname = "x"\n[tool.poetry.dependencies]\nnot_one = "^1"', "not_one"),
    "an address": ("pyproject.toml", f'[project]\nname = "x"\ndependencies = ["{ADDRESS}"]', ADDRESS),
    "requirements": ("requirements-gpu.txt", "# gpu\nnot-one==2 --no-build-isolation  # fast\n-r x", "not-one==2"),
    "conda": ("environment.yml", "name: x\ndependencies:\n  - not-one=1.2\n", "not-one"),
    "setup.cfg": ("setup.cfg", "[metadata]\nname = x\n[options]\ninstall_requires =\n    not-one>=1\n", "not-one>=1"),
    "setup.cfg, extras": ("setup.cfg", "[options.extras_require]\na =\n    not-one\n", "not-one"),
    "setup.py": ("setup.py", "setup(name='x', install_requires=['not-one<3'])", "not-one<3"),
}  # fmt: skip
NO_METADATA = {
    "a setup.py that builds the module": ("setup.py", "setup(name='not_one', ext_modules=[E('not_one', [])])"),
    "a setup.cfg of that name": ("setup.cfg", "[metadata]\nname = not_one\n"),
    "a broken setup.cfg": ("setup.cfg", "not_one\n"),
    "a broken setup.py": ("setup.py", "install_requires=['not_one'"),
    "an environment of that name": ("environment.yml", "name: not_one\n"),
    "words": ("requirements.txt", "# install not_one first\nnot_one_more\n"),
}


@pytest.mark.parametrize(("file", "text", "requirement"), METADATA.values(), ids=METADATA)
def test_whatever_metadata_a_project_has_is_read(tmp_path: Path, file: str, text: str, requirement: str) -> None:
    (tmp_path / file).write_text(text)
    words = install_words({"not_one": "a.py:1"}, Code(folder=str(tmp_path)))
    assert shlex.split(words)[-1] == requirement


@pytest.mark.parametrize(("file", "text"), NO_METADATA.values(), ids=NO_METADATA)
def test_what_only_looks_like_metadata_names_no_package(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    words = install_words({"not_one": "a.py:1"}, Code(folder=str(tmp_path)))
    assert words.startswith("not installed here: not_one, which a.py:1 imports; ") and " install " not in words


def test_a_part_of_a_package_with_the_name_of_what_is_missing_is_not_that(tmp_path: Path) -> None:
    """`gpt_oss/triton/model.py` imports triton: `--code gpt_oss` would not help."""
    code = Code(folder=str(tmp_path))
    for name in ("triton", "not_one"):
        (tmp_path / "gpt_oss" / name).mkdir(parents=True)
        (tmp_path / "gpt_oss" / name / "__init__.py").touch()
    assert "--code" not in install_words({"not_one": "gpt_oss/not_one/__init__.py:1"}, code)
    (tmp_path / "gpt_oss" / "__init__.py").touch()
    assert "--code" not in install_words({"triton": "a.py:1", "not_one": "a.py:1"}, code)


def test_an_installed_package_that_lacks_a_part_is_named(tmp_path: Path) -> None:
    code, site = Code(folder=str(tmp_path)), tmp_path / ".venv" / "site-packages"
    site.mkdir(parents=True)
    (site / "not_ssm.py").write_text("import not_cuda\n")
    (tmp_path / "mine.py").write_text(f"import sys\nsys.path.append({str(site)!r})\nimport not_ssm\n{LOSS}")
    found = said(code, "mine:loss")
    assert found.startswith("mine.py:3: ModuleNotFoundError: No module named 'not_cuda'; not installed ")
    assert "; not installed here: not_cuda, which the installed package not_ssm imports; " in found


def test_a_module_that_lies_elsewhere_in_the_folder_is_not_to_be_installed(code: Code) -> None:
    (Path(code.folder) / "research").mkdir()
    (Path(code.folder) / "research" / "helpers.py").touch()
    words = install_words({"helpers": "train.py:1"}, code)
    assert words == "helpers is research/helpers.py: give the folder that your code imports from by --code research"


def test_syntax_of_a_newer_python_is_called_so(code: Code) -> None:
    Path(code.folder, "new.py").write_text("def f[T](: ...\n")
    Path(code.folder, "pyproject.toml").write_text('[project]\nname = "x"\nrequires-python = ">=3.99"\n')
    with pytest.raises(RequestError, match=r"new.py:1: SyntaxError: .*; pyproject.toml asks for Python >=3.99, and "):
        check_reference("new:f", code)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("if False:\n    import not_now\n\ndef f():\n    import not_then\n\nwith open('x') as y:\n    import z9\n", 8),
        ("import os\nimport z9\ntry:\n    import os\nfinally:\n    import z9\nimport z9\n", 2),
    ],
    ids=["not what only some machines import", "several times"],
)
def test_what_is_missing_has_the_first_line_that_always_imports_it(code: Code, text: str, line: int) -> None:
    file = Path(code.folder, "mine.py")
    file.write_text(text)
    assert missing_packages([file], code) == {"z9": f"mine.py:{line}"}
    later = Path(code.folder, "later.py")
    later.write_text("import z9\n")
    assert missing_packages([file, later], code) == {"z9": f"mine.py:{line}"}


def test_a_part_that_is_compiled_when_the_project_is_installed_is_called_so(code: Code) -> None:
    """It is imported after the version was asked for, which pyproject.toml has."""
    package = Path(code.folder, "cs336_systems", "__init__.py")
    package.write_text(f"{package.read_text()}from . import kernels\n")
    found = said(code, "cs336_systems.loss:loss")
    assert "cs336_systems has no kernels.py, so it is probably compiled when the project is installed: " in found
    assert found.endswith(f" install -e {code.folder}")
