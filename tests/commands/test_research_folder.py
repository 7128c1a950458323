"""An ordinary research folder: its files have names that the standard library, other libraries and our packages use."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from lmsweep.trials.machine.interpreter import command
from tests.support.command import ROOT, write_sweep

pytestmark = pytest.mark.usefixtures("one_core")

OF_THE_LIBRARY = (
    *("random", "queue", "logging", "json", "inspect", "signal", "numbers", "platform", "select"),
    *("socket", "copy", "string", "statistics", "secrets", "calendar", "code", "shelve"),
)
OURS = ("trials", "orchestrator", "analysis")
NAMES = (*OF_THE_LIBRARY, *OURS, "torch", "ray", "numpy", "pandas", "psutil", "typer", "yaml", "scipy")

START = [sys.executable, "-P", "-c", "import sys; from lmsweep.orchestrator.cli import main; sys.exit(main())"]
"""The command as it is installed: a script in a folder of its own."""
PATHS = (str(ROOT), f"{ROOT}:.", f"{ROOT}:", f"{ROOT}:../research")
"""What users have in PYTHONPATH; ours stands for an installation, and `import orchestrator` finds what comes first."""

LIBRARIES = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", str(ROOT))]
"""Where PYTHONPATH says that libraries are installed."""

BY_SITE = re.compile(r"(Error processing line \d+ of \S+\.pth:\n.*?Remainder of file ignored\n+)+", re.DOTALL)
"""What Python says when it starts with such a PYTHONPATH, where another package's .pth file imports modules. No process
that we start begins so, therefore it may appear once.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """It holds folders of data with our names, which are packages to Python."""
    for name in OURS:
        (tmp_path / "research" / name).mkdir(parents=True)
        (tmp_path / "research" / name / "data.csv").write_text("a,b\n1,2\n")
    return tmp_path / "research"


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.py").write_text(f"raise ImportError('this is the {name}.py of the user')\n")


def run_there(folder: Path, *words: str | Path, path: str) -> str:
    """What is printed by a command that is started in the folder under this PYTHONPATH and must exit with 0."""
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([path, *LIBRARIES])},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = BY_SITE.sub("", done.stderr, count=1)
    assert "Traceback" not in said and "of the user" not in done.stdout + said, done.stderr
    return done.stdout


def test_neither_the_command_nor_its_processes_import_files_of_the_folder(folder: Path):
    put(folder, *NAMES)
    for path in PATHS[:2]:
        assert "Show which trials would run" in run_there(folder, *START, "plan", "--help", path=path)
    run_there(folder, *command("lmsweep.trials.store.store"), path=str(ROOT))


@pytest.mark.slow
def test_a_script_and_a_notebook_in_the_folder_load_results(folder: Path):
    put(folder, *OF_THE_LIBRARY)
    for first in (folder, ""):  # of a script, and of a notebook's kernel
        (folder / "script.py").write_text(
            f"import sys; sys.path[0] = {str(first)!r}; before = list(sys.path)\n"
            "import lmsweep\n"
            "assert callable(lmsweep.load) and callable(lmsweep.report) and sys.path == before\n"
        )
        run_there(folder, sys.executable, "script.py", path=str(ROOT))


@pytest.mark.slow
def test_doctor_and_planning_answer_in_a_folder_of_such_files(folder: Path):
    put(folder, *NAMES)
    assert "devices  " in run_there(folder, *START, "doctor", path=PATHS[1])
    cache = folder.parent / "cache"  # nothing is predicted yet
    words = ("env", f"XDG_CACHE_HOME={cache}", *START, "plan", "quick", "--set", "context_length=96")
    assert "predicted" not in run_there(folder, *words, path=PATHS[1]) and list(cache.rglob("predictions-*"))


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS[1:])
def test_a_run_measures_in_a_folder_of_such_files(folder: Path, path: str):
    put(folder, *NAMES)
    write_sweep(folder, context_length=[16], compile=["none", "block"])
    out = run_there(folder, *START, "run", "sweep.yaml", path=path)
    assert "2 trials, 2 to run" in out
    assert set(pd.read_parquet(folder / "results" / "measurements")["status"]) == {"ok"}
