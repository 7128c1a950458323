"""The floors of the house, read from the folders and from what each package says of its rooms: who may import whom."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "trials": ("trials",),
    "analysis": ("trials", "analysis"),
    "orchestrator": ("trials", "analysis", "orchestrator"),
}
"""The packages, and those that each may import from."""
HARDWARE = ("torch", "triton", "nvtx", "pynvml", "psutil")
"""Imported by what measures or looks at a machine."""


def rooms(package: str, root: Path = ROOT) -> list[str]:
    """The rooms of a package as its docstring lists them, from the top down."""
    words = ast.get_docstring(ast.parse((root / package / "__init__.py").read_text()), clean=True) or ""
    return re.findall(r"^    (\w+)  ", words, flags=re.MULTILINE)


def files(package: str, root: Path = ROOT) -> list[Path]:
    return sorted(
        path for path in (root / package).rglob("*.py") if path.parent != root / package or path.stem != "__init__"
    )


def imports(path: Path) -> set[str]:
    """Every module that the file imports anywhere, by its full name; ours without `lmsweep.`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return {name.removeprefix("lmsweep.") for name in found}


def upward_imports(package: str, root: Path = ROOT) -> list[str]:
    """The imports of a package that go to a room above their own, or to a package above it."""
    height = {room: place for place, room in enumerate(reversed(rooms(package, root)))}
    found = []
    for path in files(package, root):
        here = path.relative_to(root / package).with_suffix("").parts[0]
        for name in imports(path):
            other, _, rest = name.partition(".")
            room = rest.partition(".")[0]
            above = other in MAY_IMPORT and other not in MAY_IMPORT[package]
            if above or (other == package and room in height and height[room] > height[here]):
                found.append(f"{path.relative_to(root)} imports {name}")
    return found


def knows_no_hardware() -> set[str]:
    """The rooms of `trials` that neither import torch or what looks at a machine, nor a room that does."""
    known: set[str] = set()
    for room in reversed(rooms("trials")):
        names = {name for path in (ROOT / "trials" / room).rglob("*.py") for name in imports(path)}
        ours = {name.split(".")[1] for name in names if name.startswith("trials.")} - {"__version__"}
        if not {name.partition(".")[0] for name in names} & {*HARDWARE} and ours <= known | {room}:
            known.add(room)
    return known


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_lists_its_rooms_and_has_no_others(package):
    there = {
        path.name
        for path in (ROOT / package).iterdir()
        if path.is_dir() and path.name not in ("__pycache__", "notebooks")
    }
    loose = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    assert sorted(rooms(package)) == sorted(there | loose)


def test_the_folder_listings_are_short():
    assert len(rooms("trials")) <= 16
    assert not {path.name for path in (ROOT / "trials").glob("*.py")} - {"__init__.py"}
    assert {path.stem for path in (ROOT / "orchestrator").glob("*.py")} == {"__init__", "cli", "terminal", "interrupt"}
    assert {path.name for path in (ROOT / "analysis").glob("*.py")} == {"__init__.py"}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_room_imports_from_one_above_it(package):
    assert upward_imports(package) == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_an_import_from_a_room_above_is_found(package, tmp_path):
    top, *_, bottom = (room for room in rooms(package) if (ROOT / package / room).is_dir())
    for room in (top, bottom):
        (tmp_path / package / room).mkdir(parents=True)
    (tmp_path / package / "__init__.py").write_text((ROOT / package / "__init__.py").read_text())
    (tmp_path / package / bottom / "basement.py").write_text(f"from lmsweep.{package}.{top}.attic import view\n")
    assert sorted(upward_imports(package, tmp_path)) == [
        f"{package}/{bottom}/basement.py imports {package}.{top}.attic",
        f"{package}/{bottom}/basement.py imports {package}.{top}.attic.view",
    ]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_our_code_imports_itself_by_one_name(package):
    for path in files(package):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.partition(".")[0] in MAY_IMPORT], path


def touches(path: Path, *packages: str) -> set[str]:
    return {name for name in imports(path) if name.partition(".")[0] in packages}


@pytest.mark.parametrize("package", ["trials", "analysis"])
def test_neither_trials_nor_analysis_knows_ray(package):
    assert not [path for path in files(package) if touches(path, "ray")]


def test_analysis_imports_of_trials_only_rooms_that_know_no_hardware():
    known = knows_no_hardware()
    assert {"spec", "results", "analytic", "store"} <= known
    for path in files("analysis"):
        assert not touches(path, *HARDWARE)
        assert {name.split(".")[1] for name in touches(path, "trials") if "." in name} <= known, path


def test_the_files_that_know_tune_are_few_and_the_orchestrator_knows_no_torch():
    assert not [path for path in files("orchestrator") if touches(path, "torch")]
    tune = [path for path in files("orchestrator") if any(name.startswith("ray.tune") for name in imports(path))]
    runs_trials = {"tune_runner", "trial_queue", "result_collector", "supervisor"}
    assert {path.stem for path in tune} == runs_trials | {"ray_private", "ray_session"}


def test_no_modules_import_each_other_in_a_circle():
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for package in MAY_IMPORT
        for path in files(package)
        if path.name != "__init__.py"  # it hands on what its modules define
    }
    floors = TopologicalSorter({name: imports(path) & modules.keys() for name, path in modules.items()})
    assert {*floors.static_order()} == modules.keys()  # a CycleError names those of a circle


def test_importing_the_analysis_or_the_plan_loads_neither_torch_nor_ray():
    script = (
        "import sys, lmsweep.analysis; from lmsweep.trials.isolation import client;"
        "from lmsweep.orchestrator.planning import plan; from lmsweep.orchestrator.running import run, worker;"
        "print([m for m in ('torch', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
