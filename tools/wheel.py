"""Builds the wheel and uses it like somebody who has no checkout: ``python -m tools.wheel``, or ``make wheel``.

The wheel is installed with its dependencies in an environment of its own. The commands run in an empty folder, with a
home of their own and without the variables of this shell. Ends with the exit code of the first command that fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ("lmsweep", "trials", "orchestrator", "analysis", "pyproject.toml", "README.md", "LICENSE")
"""What the wheel is made from."""

COMMANDS = (
    "lmsweep --version",
    "lmsweep run quick",
    "lmsweep table results",
    "lmsweep compare h100-devices h200-devices --where model=small",
    "lmsweep report results -o mine.html",
    "lmsweep report h100-devices --with h200-devices -o devices.html",
    "lmsweep report --notebooks notebooks",
    "python run_notebook.py notebooks/01-first-look.ipynb",
    "python where.py",
)
RUN_NOTEBOOK = """
import json, sys
import matplotlib
matplotlib.use("agg")
cells = json.load(open(sys.argv[1], encoding="utf-8"))["cells"]
exec("\\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
"""
WHERE = """
import sys
import lmsweep
print(lmsweep.__file__, len(lmsweep.load("results")), "rows")
assert lmsweep.__file__.startswith(sys.prefix)
"""


def copy_source(folder: Path) -> Path:
    """Copy what the wheel is made from: a build leaves folders behind. Return the copy."""
    for name in SOURCE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def build_wheel(source: Path, folder: Path, *options: str) -> Path:
    """Let pip build the wheel into this folder; options: of `pip wheel`."""
    words = ["wheel", "--quiet", "--no-deps", *options, "--wheel-dir", folder, source]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, cwd=folder.parent, timeout=600)
    (built,) = folder.glob("*.whl")
    return built


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        folder = Path(name)
        (folder / "source").mkdir()
        wheel = build_wheel(copy_source(folder / "source"), folder / "dist")
        print(wheel.name, flush=True)
        venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv" / "bin"
        install = ["install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt", f"{wheel}[figures]"]
        subprocess.run([programs / "pip", *install], check=True, cwd=folder)
        empty = folder / "empty"
        empty.mkdir()
        (empty / "run_notebook.py").write_text(RUN_NOTEBOOK)
        (empty / "where.py").write_text(WHERE)
        bare = {"PATH": f"{programs}{os.pathsep}{os.defpath}", "HOME": str(folder), "COLUMNS": "120", "LANG": "C.UTF-8"}
        for command in COMMANDS:
            print(f"$ {command}", flush=True)
            if code := subprocess.run(command.split(), cwd=empty, env=bare, check=False).returncode:
                print(f"{command} ended with exit code {code}", file=sys.stderr)
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
