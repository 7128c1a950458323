"""The wheel: what it installs, and that it works beside a user's own files of any name."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from lmsweep.trials import __version__
from tests.support.command import ROOT
from tools.wheel import COMMANDS, build_wheel, copy_source

PACKAGES = ("trials", "orchestrator", "analysis")
WITHOUT_INDEX = ("--no-build-isolation", "--no-index")
STORE = ROOT / "tests" / "support" / "stores" / "cpu"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return build_wheel(source, source / "from-checkout", *WITHOUT_INDEX)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and the libraries of this one, but no checkout."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    assert not list(packages.iterdir())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # Python follows no .pth file in a folder that a .pth file names: this environment's editable lmsweep stays out.
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    libraries = [path for path in sys.path if path.endswith("-packages") or path in {*named} - {str(ROOT)}]
    (packages / "libraries.pth").write_text("\n".join(libraries) + "\n")
    return folder / "bin" / "python"


@pytest.fixture
def research(tmp_path: Path) -> Path:
    """A folder with the user's own modules, which have the names of our folders."""
    for name in ("analysis/__init__.py", "trials.py", "orchestrator/__init__.py"):
        path = tmp_path / "research" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"raise ImportError('this is the {name} of the user')\n")
    return tmp_path / "research"


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def run_there(folder: Path, python: Path, *words: str | Path) -> str:
    """What Python prints in this folder; it must exit with 0 and import none of the user's modules."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, *map(str, words)],
        cwd=folder,
        env=environment | {"COLUMNS": "200", "HOME": str(folder.parent)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0 and "of the user" not in done.stderr, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_adds_one_top_level_name(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in names_in(wheel)}
    assert tops == {"lmsweep", f"lmsweep-{__version__}.dist-info"}
    assert zipfile.ZipFile(wheel).read(f"lmsweep-{__version__}.dist-info/top_level.txt").split() == [b"lmsweep"]


def test_a_wheel_holds_every_module_and_every_file_that_the_code_reads(wheel: Path) -> None:
    there = {name for name in names_in(wheel) if name.startswith("lmsweep/")}
    modules = {f"lmsweep/{path.relative_to(ROOT)}" for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    assert {name for name in there if name.endswith(".py")} == {*modules, "lmsweep/__init__.py", "lmsweep/__main__.py"}

    data = {name for name in tracked("--cached", "--others") if (ROOT / name).is_file() and not name.endswith(".py")}
    expected = {f"lmsweep/{name.removeprefix('lmsweep/')}" for name in data}
    assert {name for name in there if not name.endswith(".py")} == expected


def tracked(*kinds: str) -> list[str]:
    """The files of the packages that git has or ignores."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    words = ["git", "ls-files", *kinds, "--exclude-standard", *PACKAGES, "lmsweep"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_git_ignores_no_file_of_the_code() -> None:
    assert [name for name in tracked("--others", "--ignored") if "__pycache__" not in name] == []


@pytest.mark.slow
def test_the_command_and_load_work_in_a_folder_with_modules_of_our_names(python: Path, research: Path) -> None:
    assert run_there(research, python, "-P", "-m", "lmsweep", "--version").strip() == f"lmsweep {__version__}"
    assert "12 trials" in run_there(research, python, "-m", "lmsweep", "plan", "quick", "--no-predict")
    script = (
        "import sys, lmsweep\n"
        f"assert len(lmsweep.load({str(STORE)!r})) > 100\n"
        "from lmsweep import trials, analysis, orchestrator\n"
        "ours = [module for name, module in sys.modules.items() if name.partition('.')[0] == 'lmsweep']\n"
        f"assert all(module.__file__.startswith({str(python.parents[1])!r}) for module in ours)\n"
        "assert not {'trials', 'orchestrator', 'analysis'} & sys.modules.keys()\n"
    )
    run_there(research, python, "-P", "-c", script)


@pytest.mark.slow
def test_an_sdist_holds_files_instead_of_links_and_makes_the_same_wheel(wheel: Path, source: Path) -> None:
    script = "from setuptools import build_meta; build_meta.build_sdist('sdist')"
    subprocess.run([sys.executable, "-c", script], cwd=source, check=True, capture_output=True, timeout=120)
    (path,) = (source / "sdist").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        files = archive.getmembers()
        assert all(one.isfile() or one.isdir() for one in files)
        archive.extractall(source / "unpacked", filter="data")
    (unpacked,) = (source / "unpacked").iterdir()
    assert names_in(build_wheel(unpacked, source / "from-sdist", *WITHOUT_INDEX)) == names_in(wheel)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_make_wheel_measures_and_shows_results_in_an_environment_that_has_the_wheel_alone() -> None:
    done = subprocess.run(["make", "wheel"], cwd=ROOT, capture_output=True, text=True, timeout=1400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line[2:] for line in done.stdout.splitlines() if line.startswith("$ ")] == list(COMMANDS)
    assert re.search(r"^\[ *1/\d+\]", done.stdout, re.MULTILINE) and "step.time (ms)" in done.stdout  # no time for all
