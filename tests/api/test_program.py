"""lmsweep from a program: the functions answer what the commands print, and reading needs neither torch nor Ray."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lmsweep
from tests.support.command import ROOT, lmsweep_here, program

H100, H200 = "h100-devices", "h200-devices"


def test_the_functions_answer_what_the_commands_print(tmp_path: Path) -> None:
    table = lmsweep.table(H200, rows=["model"], cols=["precision"], where={"context_length": "256", "compile": "none"})
    words = ["--rows", "model", "--cols", "precision", "--where", "context_length=256", "--where", "compile=none"]
    assert lmsweep.render(table, "csv").strip() == lmsweep_here("table", H200, *words, "--format", "csv").strip()

    found = lmsweep.compare(H100, H200, across=["device_name", "driver_version"])
    words = ["--across", "device_name,driver_version", "--format", "csv"]
    assert lmsweep.render(found.listing(), "csv").strip() == lmsweep_here("compare", H100, H200, *words).strip()
    assert set(found.frame["verdict"]) == {"faster"}

    assert "<table" in table._repr_html_() and "bf16" in table._repr_html_()  # what a notebook draws
    assert "<table" in found._repr_html_() and "faster" in found._repr_html_()

    assert lmsweep.report("h200-costs", tmp_path / "report.html") == (tmp_path / "report.html").stat().st_size
    assert {trial.action for trial in lmsweep.plan("quick", store=str(tmp_path), predict=False).plan.trials} == {"run"}
    with pytest.raises(ValueError, match="nothing to compare"):
        lmsweep.compare(H100)


def requirements() -> list[str]:
    lines = (ROOT / "requirements-read.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_reading_needs_some_of_the_same_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    left_out = set(project["dependencies"]) - set(requirements())
    assert set(requirements()) <= set(project["dependencies"])
    assert {word.partition(">")[0] for word in left_out} == {"torch", "ray[tune]", "nvtx", "nvidia-ml-py", "psutil"}


def without_torch_and_ray(*words: str | Path) -> subprocess.CompletedProcess[str]:
    script = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'ray', 'nvtx', 'pynvml', 'psutil'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from lmsweep.orchestrator.cli import main\n"
        "main()\n"
    )
    return program(sys.executable, "-c", script, *words)


def test_what_measures_says_what_is_missing_where_torch_and_ray_are_not_installed(tmp_path: Path) -> None:
    done = without_torch_and_ray("run", "quick", "--store", tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "is not installed" in done.stderr and f"To measure: {sys.executable} -m pip install 'torch>=" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("table", H200),
        ("table", H200, "--preset", "roofline"),
        ("compare", H100, H200, "--across", "device_name,driver_version"),
        ("compare", "h200-end-to-end", "--with", "published"),
        ("compare", H100, H200, "--environment"),
        ("doctor", "host_bound"),
        ("report", H200, "-o", "report.html"),
        ("sweeps",),
    ],
    ids=" ".join,
)
def test_what_reads_works_where_torch_and_ray_are_not_installed(tmp_path: Path, monkeypatch, words) -> None:
    monkeypatch.chdir(tmp_path)
    done = without_torch_and_ray(*words)
    assert done.returncode == 0 and done.stdout, done.stderr
