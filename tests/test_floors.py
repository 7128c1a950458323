"""The floors of the house, read from the folders and from what each package says of its rooms: who may import whom."""

import ast
import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

from lmsweep.orchestrator.commands.app import CORE
from lmsweep.orchestrator.feature import features
from tests.support.product import (
    MAY_IMPORT,
    ROOT,
    TORCH_PRIVATE,
    dotted,
    files,
    imported_by,
    imports,
    rooms,
    touches,
    tree_of,
    words_of,
)
from tools.rooms import core, lines

MOST_MODULES = 12
"""In one folder."""
HARDWARE = ("torch", "triton", "nvtx", "pynvml", "psutil")
"""Packages of code that measures or inspects a machine."""


def write(root: Path, modules: dict[str, str]) -> None:
    for name, text in modules.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_lists_its_rooms_and_has_no_others(package):
    there = {path.parent.name for path in (ROOT / package).glob("*/*.*")} - {"__pycache__", "notebooks"}
    loose = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    assert sorted(rooms(package)) == sorted(there | loose)


def test_a_room_that_lists_its_files_lists_them_all():
    for init in (path for package in MAY_IMPORT for path in (ROOT / package).glob("*/__init__.py")):
        listed = re.findall(r"^(\w+\.py)  ", words_of(init), flags=re.MULTILINE)
        there = {path.name for path in init.parent.glob("*.py")} - {"__init__.py"}
        assert not listed or set(listed) == there, f"{init}: {set(listed) ^ there}"


def test_the_folder_listings_are_short():
    sizes = Counter(path.parent for path in files() if path.stem != "__init__")
    assert len(sizes) > 30 and not {folder: size for folder, size in sizes.items() if size > MOST_MODULES}


def upward_imports(package: str, root: Path = ROOT) -> list[str]:
    """The imports of a package that go to a room above their own, or to a package above it."""
    height = {room: place for place, room in enumerate(reversed(rooms(package, root)))}
    found = []
    for path in files(package, root=root):
        here = path.relative_to(root / package).with_suffix("").parts[0]
        for name in imports(path):
            other, _, rest = name.partition(".")
            room = rest.partition(".")[0]
            above = other in MAY_IMPORT and other not in MAY_IMPORT[package]
            if above or (other == package and room in height and height[room] > height[here]):
                found.append(f"{path.relative_to(root)} imports {name}")
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_room_imports_from_one_above_it(package):
    assert upward_imports(package) == []


def test_an_import_from_a_room_or_a_package_above_is_found(tmp_path):
    listed = (ROOT / "trials" / "__init__.py").read_text()
    text = "from lmsweep.trials.workloads import attic\nimport lmsweep.analysis\nimport lmsweep.trials.spec.cellar\n"
    write(tmp_path, {"trials/__init__.py": listed, "trials/spec/basement.py": text})
    above = ("analysis", "trials.workloads", "trials.workloads.attic")
    expected = [f"trials/spec/basement.py imports {name}" for name in above]
    assert sorted(upward_imports("trials", tmp_path)) == expected


FEATURES = "orchestrator/features"
FEATURE = re.compile(r"orchestrator\.features\.(\w+)")
"""What names a feature: an import, or text by which a module is imported."""


def text_at_run_time(path: Path, root: Path) -> str:
    """The file, in `lmsweep/__init__.py` without the block for type checkers, which cannot ask a feature."""
    text = path.read_text()
    for_checkers = r"^if TYPE_CHECKING:\n(?: .*\n)+"
    return re.sub(for_checkers, "", text, flags=re.MULTILINE) if path == root / "lmsweep/__init__.py" else text


def features_named_elsewhere(root: Path = ROOT) -> list[str]:
    """Where the core names a feature, and a feature another."""
    found = []
    for path in [*(one for package in (*MAY_IMPORT, "lmsweep") for one in (root / package).rglob("*.py"))]:
        place = path.relative_to(root)
        own = place.parts[2] if place.is_relative_to(FEATURES) and len(place.parts) > 3 else ""
        found += [f"{place} names {name}" for name in {*FEATURE.findall(text_at_run_time(path, root))} - {own}]
    return sorted(found)


def test_the_core_names_no_feature_and_no_feature_another():
    assert features_named_elsewhere() == []


@pytest.mark.parametrize(
    "place",
    ["trials/a.py", "orchestrator/commands/a.py", "lmsweep/__init__.py", f"{FEATURES}/b/a.py", f"{FEATURES}/a.py"],
)
def test_a_feature_that_is_named_elsewhere_is_found(place, tmp_path):
    write(tmp_path, dict.fromkeys((place, f"{FEATURES}/c/d.py"), "import lmsweep.orchestrator.features.c.d\n"))
    assert features_named_elsewhere(tmp_path) == [f"{place} names c"]


def names_read(path: Path) -> Counter[str]:
    """How often a module reads each name, as it is or as an attribute; an import alone reads nothing."""
    nodes = ast.walk(tree_of(path))
    return Counter(
        one.id if isinstance(one, ast.Name) else one.attr
        for one in nodes
        if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Load)
    )


def names_defined(path: Path) -> set[str]:
    """The functions, classes, methods and constants of a module."""
    body = tree_of(path).body
    found = {one.name for one in ast.walk(tree_of(path)) if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    found = {name for name in found if not name.startswith("__")}  # Python and PyTorch call those
    return found | {
        one.targets[0].id for one in body if isinstance(one, ast.Assign) and type(one.targets[0]) is ast.Name
    }


def read_by_one_feature(root: Path = ROOT) -> list[str]:
    """The names that the core defines and only one feature reads; PyTorch's private ones have a module of their own."""
    core_files = [path for path in files(root=root) if FEATURES not in path.as_posix()]
    in_core = sum(map(names_read, core_files), Counter[str]())
    readers: dict[str, set[str]] = {}
    for path in (root / FEATURES).glob("*/**/*.py"):
        for name in names_read(path):
            readers.setdefault(name, set()).add(path.relative_to(root / FEATURES).parts[0])
    return sorted(
        f"{path.relative_to(root)}: {name} is read by {feature}"
        for path in core_files
        if path != TORCH_PRIVATE
        for name in names_defined(path) - in_core.keys()
        for feature in readers.get(name, ())
        if len(readers[name]) == 1
    )


def test_what_only_one_feature_reads_lies_in_that_feature():
    assert read_by_one_feature() == []


def test_a_name_of_the_core_that_only_one_feature_reads_is_found(tmp_path):
    defines = "LEAST = 1\ndef one(): return two()\ndef two(): ...\nclass Three:\n    def four(self): ...\n"
    reads = "from lmsweep.analysis.a.b import LEAST, one, two, Three\none(LEAST)\ntwo()\nThree().four()\n"
    write(tmp_path, {"analysis/a/b.py": defines, f"{FEATURES}/c/d.py": reads})
    found = [line.split(": ")[1].split()[0] for line in read_by_one_feature(tmp_path)]
    assert found == ["LEAST", "Three", "four", "one"]


MOST_LINES_OF_CORE = 40_851
"""May only be lowered: what a new question needs goes into a feature."""


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git")
def test_no_feature_makes_the_core_larger():
    assert core(lines()) <= MOST_LINES_OF_CORE


@pytest.mark.parametrize(
    ("package", "others"),
    [
        ("trials", ["ray", "unittest", "mock"]),
        ("analysis", ["ray", *HARDWARE, "unittest", "mock"]),
        ("orchestrator", ["unittest", "mock"]),
    ],
)
def test_a_package_knows_nothing_of_these_libraries(package, others):
    assert not [path for path in files(package) if touches(path, *others)]


def test_our_code_imports_itself_by_one_name():
    own = "|".join(MAY_IMPORT)
    for path in files():
        assert not re.search(rf"^ *(?:from|import) (?:{own})\b", path.read_text(), flags=re.MULTILINE), path


def knows_no_hardware() -> set[str]:
    """The rooms of `trials` that neither import torch or what looks at a machine, nor a room that does."""
    known: set[str] = set()
    for room in reversed(rooms("trials")):
        names = {name for path in (ROOT / "trials" / room).rglob("*.py") for name in imports(path)}
        ours = {name.split(".")[1] for name in names if name.startswith("trials.")} - {"__version__"}
        if not {name.partition(".")[0] for name in names} & {*HARDWARE} and ours <= known | {room}:
            known.add(room)
    return known


def test_analysis_imports_of_trials_only_rooms_that_know_no_hardware():
    known = knows_no_hardware()
    assert {"spec", "results", "analytic", "store"} <= known
    for path in files("analysis"):
        assert {name.split(".")[1] for name in touches(path, "trials") if "." in name} <= known, path


def test_the_files_that_know_tune_are_few_and_the_orchestrator_knows_no_torch_but_in_programs_of_features():
    with_torch = [path for path in files("orchestrator") if touches(path, "torch")]
    assert all(FEATURES in path.as_posix() and not touches(path, "ray") for path in with_torch)
    tune = {path.stem for path in files("orchestrator") if any(name.startswith("ray.tune") for name in imports(path))}
    assert tune == {"tune_runner", "supervisor", "ray_private", "ray_session"}


MANY = ("__init__", "api", "workload", "presets")
"""Names of modules that there may be several of: the functions of a package; what is found in a feature by its name."""


def test_each_module_has_a_name_of_its_own():
    names = Counter(path.stem for path in files() if path.stem not in MANY)
    assert not {name for name, count in names.items() if count > 1}


def test_no_modules_import_each_other_in_a_circle():
    # An `__init__` hands on what its modules define.
    modules = {dotted(path): path for path in files() if path.name != "__init__.py"}
    floors = TopologicalSorter({name: imports(path) & modules.keys() for name, path in modules.items()})
    assert {*floors.static_order()} == modules.keys()  # a CycleError names those of a circle


DOOR_LINES = 80
"""A module of fewer lines with one reader, in its own folder, is a door to open on the way to what the reader says."""


def doors(root: Path = ROOT) -> set[str]:
    """Short modules with one reader, in the same folder. An `__init__` that hands a module on is a reader only of what
    nothing else imports: it lists presets, for instance. What is imported inside of a function is apart to load late.
    """
    modules = {dotted(path, root): path for path in files(root=root)}
    readers: dict[str, set[str]] = {name: set() for name in modules}
    for reader, path in modules.items():
        for name in imports(path) & modules.keys() - {reader}:
            readers[name].add(reader)
    found = set()
    for name, path in modules.items():
        hands_on = f"{name.rpartition('.')[0]}.__init__"
        read_by = [modules[one] for one in readers[name] - {hands_on} or readers[name]]
        is_short = path.stem != "__init__" and len(path.read_text().splitlines()) < DOOR_LINES
        if (
            is_short
            and [one.parent for one in read_by] == [path.parent]
            and name in imported_by(tree_of(*read_by).body)
        ):
            found.add(name)
    return found


def test_no_short_module_has_one_reader_in_its_folder():
    assert not doors()


READS = "from lmsweep.trials.store.room import x\n"


@pytest.mark.parametrize(
    ("room", "reader", "found"),
    [
        ("\n", READS, {"trials.store.room"}),
        ("\n", f"def verb():\n    {READS}", set()),
        (DOOR_LINES * "\n", READS, set()),
    ],
    ids=["door", "late", "long"],
)
def test_a_door_is_found(room, reader, found, tmp_path):
    write(tmp_path, {"trials/store/room.py": room, "trials/store/reader.py": reader})
    assert doors(tmp_path) == found


def printed_by(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_one_import_leads_to_all_packages_and_neither_it_nor_the_analysis_nor_the_plan_loads_torch_or_ray():
    script = (
        "import sys, lmsweep; early = {'pandas', 'torch', 'ray'} & set(sys.modules);"
        "names = [lmsweep.analysis.__name__, lmsweep.trials.__name__, lmsweep.orchestrator.__name__];"
        "listed = {f'lmsweep.{name}' for name in dir(lmsweep)};"
        "print(early, *names, lmsweep.load is lmsweep.analysis.load, set(names) <= listed);"
        "import lmsweep.analysis.metrics.status; from lmsweep.trials.isolation import client;"
        "from lmsweep.orchestrator.planning import plan; "
        "from lmsweep.orchestrator.running import run_plan, worker;"
        "print([m for m in ('torch', 'ray', 'matplotlib') if m in sys.modules])"
    )
    first = "set() lmsweep.analysis lmsweep.trials lmsweep.orchestrator True True"
    assert printed_by(script) == [first, "[]"]


LIBRARIES = {"numpy", "pandas", "pyarrow", "torch", "ray", "matplotlib", "scipy"}
"""What takes longer to import than static text takes to print."""


def test_verbs_that_print_static_text_and_help_load_no_library_that_they_do_not_need():
    verbs = [verb.__name__ for verb in (*CORE, *chain.from_iterable(one.verbs for one in features().values()))]
    asked = [["--help"], ["--version"], ["sweeps"], ["sweeps", "--format", "json"], ["sweeps", "quick"]]
    asked += [["doctor", "host_bound"], *([verb, "--help"] for verb in verbs)]
    script = (
        "import contextlib, io, sys; from lmsweep.orchestrator.commands.app import app\n"
        f"for words in {asked}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        app(words)\n"
        f"    print(*words, *sorted({LIBRARIES} & set(sys.modules)))"
    )
    assert printed_by(script) == [" ".join(words) for words in asked]
