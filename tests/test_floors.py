"""The floors of the house: who may import whom."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VOCABULARY = {
    *("spec", "outcome", "sizes", "words", "amounts", "measurement", "environment", "record", "schema"),
    *("attempt", "store", "folder", "fragment", "interpreter"),
    *("formulas", "devices", "prices", "interval", "prediction", "bounds"),
}
"""Modules of `trials` that know no torch, which the analysis may import."""


def imports(path: Path) -> set[str]:
    """Every module that the file imports anywhere, by its full name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def touches(path: Path, *packages: str) -> set[str]:
    return {name for name in imports(path) if name.partition(".")[0] in packages}


@pytest.mark.parametrize("path", files("trials"), ids=lambda path: path.name)
def test_trials_knows_neither_ray_nor_the_floors_above(path):
    assert not touches(path, "ray", "orchestrator", "analysis")


@pytest.mark.parametrize("name", sorted(VOCABULARY))
def test_the_vocabulary_knows_no_torch_and_nothing_above_itself(name):
    path = ROOT / "trials" / f"{name}.py"
    assert not touches(path, "torch", "nvtx", "pandas")
    assert {found.split(".")[1] for found in touches(path, "trials") if "." in found} <= VOCABULARY


@pytest.mark.parametrize("path", files("analysis"), ids=lambda path: path.name)
def test_analysis_knows_neither_torch_nor_ray_and_of_trials_only_the_vocabulary(path):
    assert not touches(path, "torch", "ray", "orchestrator")
    assert {found.split(".")[1] for found in touches(path, "trials") if "." in found} <= VOCABULARY


@pytest.mark.parametrize("path", files("orchestrator"), ids=lambda path: path.name)
def test_only_launch_and_the_file_of_private_names_import_tune_and_nobody_imports_torch(path):
    assert not touches(path, "torch")
    assert path.name in ("launch.py", "ray_session.py", "ray_private.py") or not [
        name for name in imports(path) if name.startswith("ray.tune")
    ]


def test_no_modules_import_each_other_in_a_circle():
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for package in ("trials", "analysis", "orchestrator")
        for path in files(package)
        if path.name != "__init__.py"  # it hands on what its modules define
    }
    floors = TopologicalSorter({name: imports(path) & modules.keys() for name, path in modules.items()})
    assert {*floors.static_order()} == modules.keys()  # a CycleError names those of a circle


def test_importing_the_analysis_or_the_plan_loads_neither_torch_nor_ray():
    script = (
        "import sys, analysis, orchestrator.plan, orchestrator.run, orchestrator.worker, trials.isolation;"
        "print([m for m in ('torch', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
