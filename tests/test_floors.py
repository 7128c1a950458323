"""The floors of the house, read from the folders and from what each package says of its rooms: who may import whom."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

from lmsweep.orchestrator.commands.app import CORE
from lmsweep.orchestrator.feature import features
from tools.rooms import core, lines

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "trials": ("trials",),
    "analysis": ("trials", "analysis"),
    "orchestrator": ("trials", "analysis", "orchestrator"),
}
"""The packages, and those that each may import from."""
MOST_MODULES = 12
"""In one folder."""
TORCH_PRIVATE = ROOT / "trials" / "machine" / "torch_private.py"
HARDWARE = ("torch", "triton", "nvtx", "pynvml", "psutil")
"""Packages of code that measures or inspects a machine."""


def rooms(package: str, root: Path = ROOT) -> list[str]:
    """The rooms of a package as its docstring lists them, from the top down."""
    words = ast.get_docstring(ast.parse((root / package / "__init__.py").read_text()), clean=True) or ""
    return re.findall(r"^    (\w+)  ", words, flags=re.MULTILINE)


def files(package: str, root: Path = ROOT) -> list[Path]:
    return sorted(
        path for path in (root / package).rglob("*.py") if path.parent != root / package or path.stem != "__init__"
    )


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> set[str]:
    """Every module that the file imports anywhere, by its full name; ours without `lmsweep.`."""
    return imported_by(ast.walk(tree_of(path)))


def imported_by(nodes: Iterable[ast.AST]) -> set[str]:
    found = set()
    for node in nodes:
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
    there = {path.parent.name for path in (ROOT / package).glob("*/*.*")} - {"__pycache__", "notebooks"}
    loose = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    assert sorted(rooms(package)) == sorted(there | loose)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git")
@pytest.mark.parametrize("package", MAY_IMPORT)
def test_every_room_is_a_package_and_git_ignores_none_of_its_modules(package):
    modules = files(package)
    assert [path for path in modules if not (path.parent / "__init__.py").exists()] == []
    command = ["git", "check-ignore", *(str(path.relative_to(ROOT)) for path in modules)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout == ""


def test_a_room_that_lists_its_files_lists_them_all():
    for package in MAY_IMPORT:
        for init in (ROOT / package).glob("*/__init__.py"):
            listed = re.findall(
                r"^(\w+\.py)  ", ast.get_docstring(ast.parse(init.read_text())) or "", flags=re.MULTILINE
            )
            there = {path.name for path in init.parent.glob("*.py")} - {"__init__.py"}
            assert not listed or set(listed) == there, f"{init}: {set(listed) ^ there}"


def test_the_folder_listings_are_short():
    folders = [folder for package in MAY_IMPORT for folder in (ROOT / package).rglob("*/") if folder.is_dir()]
    sizes = {folder: len({*folder.glob("*.py")} - {folder / "__init__.py"}) for folder in folders}
    assert len(sizes) > 30 and not {folder: size for folder, size in sizes.items() if size > MOST_MODULES}
    assert not {path.name for path in (ROOT / "trials").glob("*.py")} - {"__init__.py"}
    assert {path.stem for path in (ROOT / "orchestrator").glob("*.py")} == {
        "__init__",
        "cli",
        "api",
        "feature",
        "plan_request",
        "terminal",
        "interrupt",
    }
    assert {path.name for path in (ROOT / "analysis").glob("*.py")} == {"__init__.py", "api.py"}


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


STEP = re.compile(r"^\d+\. \[[^]]+\]\(\.\./([\w/.]+)\)(.*)$", flags=re.MULTILINE)
"""A line of a walk in docs/architecture.md: a file, and its functions up to the first that is described otherwise."""


def walks() -> dict[str, list[tuple[Path, list[str]]]]:
    """Verb -> the files of its walk, each with the functions that the line names, from the verb to the end."""
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    found = re.findall(r"^`(\w+)`:\n\n((?:\d+\. .*\n)+)", page, flags=re.MULTILINE)
    return {
        verb: [(ROOT / path, re.findall(r"`(\w+)`", words.partition(":")[0])) for path, words in STEP.findall(lines)]
        for verb, lines in found
    }


def definitions(path: Path) -> dict[str, ast.stmt]:
    """The functions and classes of a module, by name, in their order."""
    return {
        one.name: one for one in ast.parse(path.read_text()).body if isinstance(one, ast.FunctionDef | ast.ClassDef)
    }


def uses(node: ast.stmt) -> set[str]:
    """The names that a function or a class reads and does not give to something of its own."""
    names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
    own = {one.id for one in names if isinstance(one.ctx, ast.Store)}
    own |= {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
    return {one.id for one in names} - own


def reach(path: Path, name: str) -> set[str]:
    """What a function uses, and what it uses of its module uses."""
    there, found, left = definitions(path), set(), [name]
    while left:
        new = uses(there[left.pop()]) - found
        found |= new
        left += new & there.keys()
    return found


def climbs(path: Path) -> list[str]:
    """Where a function of the module calls one that stands above it."""
    functions = [(name, one) for name, one in definitions(path).items() if isinstance(one, ast.FunctionDef)]
    return [
        f"{path.name}: {name} calls {above}"
        for place, (name, one) in enumerate(functions)
        for above, _ in functions[:place]
        if above in uses(one)
    ]


def height(path: Path) -> tuple[int, int]:
    """The package and the room of a module: a lower one is smaller."""
    package, room, *_ = path.relative_to(ROOT).with_suffix("").parts
    return [*MAY_IMPORT].index(package), -rooms(package).index(room)


def test_the_tour_shows_the_walks_of_four_verbs_in_at_most_ten_lines_each():
    assert {verb: 1 < len(steps) <= 10 for verb, steps in walks().items()} == dict.fromkeys(
        ("plan", "run", "best", "fits"), True
    )


@pytest.mark.parametrize("verb", ["plan", "run", "best", "fits"])
def test_a_walk_from_a_verb_to_the_first_trial_reads_downwards(verb):
    (verb_file, names), *rest = walks()[verb]
    assert names[0] == verb
    before = [(verb_file, name) for name in names]
    for path, names in rest:
        assert path.exists() and {*names} <= definitions(path).keys(), f"{path} defines no {names}"
        for name in names or [path.stem]:
            callers = [
                (there, caller)
                for there, caller in before
                if name in reach(there, caller) and (there, caller) != (path, name)
            ]
            assert callers or not names, f"nothing on the walk before {name} of {path.name} calls it"
            for there, caller in callers:
                assert height(there) >= height(path), f"{caller} of {there.name} calls {name} of a room above"
            before += [(path, name)] if names else []
    ours = {path for path, _ in walks()[verb] if path.is_relative_to(ROOT / "orchestrator")}
    assert [one for path in ours for one in climbs(path)] == []


def test_a_call_of_a_function_that_stands_above_is_found(tmp_path):
    (tmp_path / "spiral.py").write_text("def up(): ...\ndef down(): up()\n")
    assert climbs(tmp_path / "spiral.py") == ["spiral.py: down calls up"]


def test_what_plans_and_runs_knows_neither_the_options_nor_what_calls_it():
    above = {"orchestrator.plan_request", "orchestrator.api", "orchestrator.commands", "orchestrator.features"}
    for room in ("running", "planning", "predicting", "cluster", "sweep"):
        for path in (ROOT / "orchestrator" / room).rglob("*.py"):
            assert not [name for name in imports(path) for one in above if f"{name}.".startswith(f"{one}.")], path


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
    for path in (place, f"{FEATURES}/c/d.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("import lmsweep.orchestrator.features.c.d\n")
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
    core_files = [path for package in MAY_IMPORT for path in files(package, root) if FEATURES not in path.as_posix()]
    in_core = sum(map(names_read, core_files), Counter[str]())
    core_files = [path for path in core_files if path != TORCH_PRIVATE]
    readers: dict[str, set[str]] = {}
    for path in (root / FEATURES).glob("*/**/*.py"):
        for name in names_read(path):
            readers.setdefault(name, set()).add(path.relative_to(root / FEATURES).parts[0])
    return sorted(
        f"{path.relative_to(root)}: {name} is read by {feature}"
        for path in core_files
        for name in names_defined(path) - in_core.keys()
        for feature in readers.get(name, ())
        if len(readers[name]) == 1
    )


def test_what_only_one_feature_reads_lies_in_that_feature():
    assert read_by_one_feature() == []


def test_a_name_of_the_core_that_only_one_feature_reads_is_found(tmp_path):
    core_file, feature = tmp_path / "analysis/a/b.py", tmp_path / f"{FEATURES}/c/d.py"
    for path in (core_file, feature):
        path.parent.mkdir(parents=True)
    core_file.write_text("LEAST = 1\ndef one(): return two()\ndef two(): ...\nclass Three:\n    def four(self): ...\n")
    feature.write_text("from lmsweep.analysis.a.b import LEAST, one, two, Three\none(LEAST)\ntwo()\nThree().four()\n")
    assert [line.split(": ")[1].split()[0] for line in read_by_one_feature(tmp_path)] == [
        "LEAST",
        "Three",
        "four",
        "one",
    ]


MOST_LINES_OF_CORE = 40_876
"""May only be lowered: what a new question needs goes into a feature."""


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git")
def test_no_feature_makes_the_core_larger():
    assert core(lines()) <= MOST_LINES_OF_CORE


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_our_code_imports_itself_by_one_name(package):
    for path in files(package):
        for node in ast.walk(tree_of(path)):
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


def test_the_files_that_know_tune_are_few_and_the_orchestrator_knows_no_torch_but_in_programs_of_features():
    with_torch = [path for path in files("orchestrator") if touches(path, "torch")]
    assert all(FEATURES in path.as_posix() and not touches(path, "ray") for path in with_torch)
    tune = [path for path in files("orchestrator") if any(name.startswith("ray.tune") for name in imports(path))]
    runs_trials = {"tune_runner", "supervisor"}
    assert {path.stem for path in tune} == runs_trials | {"ray_private", "ray_session"}


MANY = ("__init__", "api", "workload", "presets")
"""Names of modules that there may be several of: the functions of a package; what is found in a feature by its name."""


def test_each_module_has_a_name_of_its_own():
    stems = (path.stem for package in MAY_IMPORT for path in files(package))
    names = Counter(stem for stem in stems if stem not in MANY)
    assert not {name for name, count in names.items() if count > 1}


def test_no_modules_import_each_other_in_a_circle():
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for package in MAY_IMPORT
        for path in files(package)
        if path.name != "__init__.py"  # it hands on what its modules define
    }
    floors = TopologicalSorter({name: imports(path) & modules.keys() for name, path in modules.items()})
    assert {*floors.static_order()} == modules.keys()  # a CycleError names those of a circle


DOOR_LINES = 80
"""A module of fewer lines with one reader, in its own folder, is a door to open on the way to what the reader says."""


def doors(root: Path = ROOT) -> set[str]:
    """Short modules with one reader, in the same folder. An `__init__` that hands a module on is a reader only of what
    nothing else imports: it lists presets, for instance. What is imported inside of a function is apart to load late.
    """
    modules = {
        ".".join(path.relative_to(root).with_suffix("").parts): path
        for package in MAY_IMPORT
        for path in files(package, root)
    }
    readers: dict[str, set[str]] = {name: set() for name in modules}
    late: dict[str, set[str]] = {}
    for reader, path in modules.items():
        for name in imports(path) & modules.keys() - {reader}:
            readers[name].add(reader)
        late[reader] = imports(path) - imported_by(tree_of(path).body)
    found = set()
    for name, path in modules.items():
        hands_on = f"{name.rpartition('.')[0]}.__init__"
        read_by = readers[name] - {hands_on} or readers[name]
        is_short = path.stem != "__init__" and len(path.read_text().splitlines()) < DOOR_LINES
        if is_short and len(read_by) == 1:
            (reader,) = read_by
            if modules[reader].parent == path.parent and name not in late[reader]:
                found.add(name)
    return found


def test_no_short_module_has_one_reader_in_its_folder():
    assert not doors()


def test_a_door_is_found(tmp_path):
    reads = "from lmsweep.trials.store.room import x\n"
    late, long = {"reader": f"def verb():\n    {reads}"}, {"room": DOOR_LINES * "\n"}
    for case, (others, found) in enumerate((({}, {"trials.store.room"}), (late, set()), (long, set()))):
        folder = tmp_path / str(case) / "trials" / "store"
        folder.mkdir(parents=True)
        for name, text in ({"room": "\n", "reader": reads} | others).items():
            (folder / f"{name}.py").write_text(text)
        assert doors(tmp_path / str(case)) == found


def test_one_module_owns_the_cache_folder():
    owners = [path for package in MAY_IMPORT for path in files(package) if "XDG_CACHE_HOME" in path.read_text()]
    assert owners == [ROOT / "trials" / "machine" / "scratch.py"]


def test_durations_are_of_the_monotonic_clock():
    """The system's clock may jump. It says only when something began, and how old a file is: one that a writer has
    left, and the one that `ray up` has left.
    """
    asks = [path for package in MAY_IMPORT for path in files(package) if re.search(r"\btime\.time\(", path.read_text())]
    about_files = ("trials/store/local_folder.py", "orchestrator/cluster/autoscaler.py")
    assert asks == [ROOT / name for name in about_files]


def test_importing_the_analysis_or_the_plan_loads_neither_torch_nor_ray_nor_matplotlib():
    script = (
        "import sys, lmsweep.analysis, lmsweep.analysis.metrics.status; from lmsweep.trials.isolation import client;"
        "from lmsweep.orchestrator.planning import plan; "
        "from lmsweep.orchestrator.running import run_plan, worker;"
        "print([m for m in ('torch', 'ray', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


LIBRARIES = {"numpy", "pandas", "pyarrow", "torch", "ray", "matplotlib", "scipy"}
"""What takes longer to import than static text takes to print."""


def test_verbs_that_print_static_text_and_help_load_no_library_that_they_do_not_need():
    asked = [["--help"], ["--version"], ["sweeps"], ["sweeps", "--format", "json"], ["sweeps", "quick"]]
    asked += [["doctor", "host_bound"], *([verb, "--help"] for verb in verbs())]
    script = (
        "import contextlib, io, sys; from lmsweep.orchestrator.commands.app import app\n"
        f"for words in {asked}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        app(words)\n"
        f"    print(*words, *sorted({LIBRARIES} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [" ".join(words) for words in asked], done.stderr


def verbs() -> list[str]:
    return [verb.__name__ for verb in (*CORE, *chain.from_iterable(one.verbs for one in features().values()))]


FEWEST_NAMED = 3
"""Minimum number of elements for which a tuple in a public signature must be a NamedTuple or a dataclass."""
UNTYPED = {
    "trials.analytic.formulas.Number": "an int, a NumPy array or a pandas Series: mixed arithmetic has no common type",
    "trials.prediction.compiled.aot_graph.returned": "what an fx graph returns: nodes, None or constants",
}
"""Public functions, and names for a type, that may say `Any`: each with the object that passes through."""


def public_functions(tree: ast.Module, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions and methods without a leading underscore in their name or their class's, and `__init__`; Python and
    PyTorch give the signatures of other methods such as `__exit__` and `__torch_function__`.
    """

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if not node.name.startswith("_") or node.name == "__init__":
                    yield f"{prefix}.{node.name}", node
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from walk(node.body, f"{prefix}.{node.name}")

    yield from walk(tree.body, prefix)


def is_name(node: ast.AST | None, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def says_any(annotation: ast.AST) -> bool:
    """Whether `Any` occurs other than in `dict[str, Any]`, which is an object of JSON or a set of keyword arguments."""
    if is_name(annotation, "Any"):
        return True
    if ast.unparse(annotation) == "dict[str, Any]":
        return False
    return any(says_any(child) for child in ast.iter_child_nodes(annotation))


def has_unnamed_tuple(annotation: ast.expr) -> bool:
    """Whether a `tuple` of three or more elements occurs; `tuple[X, ...]` is a sequence."""
    return any(
        isinstance(node, ast.Subscript)
        and is_name(node.value, "tuple")
        and isinstance(node.slice, ast.Tuple)
        and len(node.slice.elts) >= FEWEST_NAMED
        for node in ast.walk(annotation)
    )


def returns_text_for_an_error(returned: ast.expr) -> bool:
    """Whether a `str` is one of two results: what is asked for, or else the reason why not. `str | None` is one."""
    if not (isinstance(returned, ast.BinOp) and isinstance(returned.op, ast.BitOr)):
        return False
    alternatives = set(re.split(r"\s*\|\s*", re.sub(r"\[.*\]", "", ast.unparse(returned))))
    return "str" in alternatives and bool(alternatives - {"str", "None"})


def type_aliases(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names that a module gives to types: `Number = Any` is no way around the rule."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Subscript | ast.BinOp):
            yield ast.unparse(node.targets[0]), node.value


def vague_signatures(source: str, prefix: str) -> list[str]:
    """Each public function of the source whose annotations do not say what it takes or returns, and why not; likewise
    each name for a type.
    """
    tree = ast.parse(source)
    found = [f"{prefix}.{name}: Any" for name, alias in type_aliases(tree) if says_any(alias)]
    found += [f"{prefix}.{name}: unnamed tuple" for name, alias in type_aliases(tree) if has_unnamed_tuple(alias)]
    for name, function in public_functions(tree, prefix):
        taken = function.args
        parameters = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs, *filter(None, [taken.vararg])]
        annotations = [*(one.annotation for one in parameters), function.returns]
        # What `**options: Any` takes is given on as keyword arguments.
        if taken.kwarg and not is_name(taken.kwarg.annotation, "Any"):
            annotations.append(taken.kwarg.annotation)
        given = [annotation for annotation in annotations if annotation]
        if any(says_any(annotation) for annotation in given):
            found.append(f"{name}: Any")
        if any(has_unnamed_tuple(annotation) for annotation in given):
            found.append(f"{name}: unnamed tuple")
        if function.returns and returns_text_for_an_error(function.returns):
            found.append(f"{name}: str for an error")
    return found


@cache
def vague_signatures_of(package: str) -> list[str]:
    return [
        one
        for path in files(package)
        for one in vague_signatures(path.read_text(), ".".join(path.relative_to(ROOT).with_suffix("").parts))
    ]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_signatures_of_public_functions_say_what_they_take_and_return(package):
    excepted = {f"{name}: Any" for name in UNTYPED}
    untyped = "trials.machine.torch_private."  # PyTorch's private objects have no public type
    left = [one for one in vague_signatures_of(package) if one not in excepted and not one.startswith(untyped)]
    assert not left, "\n".join(left)


def test_every_exception_for_an_untyped_object_is_needed():
    assert {f"{name}: Any" for name in UNTYPED} <= {
        one for package in MAY_IMPORT for one in vague_signatures_of(package)
    }


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("def f(x: list[Any]) -> int", "Any"),
        ("def f() -> tuple[int, int, int]", "unnamed tuple"),
        ("def f(*x: list[tuple[int, int, int]]) -> int", "unnamed tuple"),
        ("def f() -> str | int | None", "str for an error"),
    ],
)
def test_a_vague_signature_is_found(signature, why):
    assert vague_signatures(f"{signature}: ...", "m") == [f"m.f: {why}"]
    assert vague_signatures(f"class C:\n    {signature}: ...", "m") == [f"m.C.f: {why}"]


MOST_NAMES = 8
"""Of the product, that a test of predictions or ranks imports."""


def names_of_the_product(source: str) -> set[str]:
    """What a test imports of lmsweep anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "lmsweep":
            found |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name.partition(".")[0] == "lmsweep"}
    return found


def test_tests_of_predictions_ask_through_few_names():
    counts = {
        path.stem.removeprefix("test_"): len(names_of_the_product(path.read_text()))
        for path in (ROOT / "tests" / "prediction").glob("test_*.py")
    }
    assert {name: count for name, count in counts.items() if count > MOST_NAMES} == {}
    assert names_of_the_product("def f():\n    from lmsweep.a import b, c\n    import lmsweep.d, os") == {
        "lmsweep.a.b",
        "lmsweep.a.c",
        "lmsweep.d",
    }


def test_one_import_leads_to_all_packages_and_loads_neither_pandas_nor_ray_by_itself():
    script = (
        "import sys, lmsweep; early = {'pandas', 'torch', 'ray'} & set(sys.modules);"
        "names = [lmsweep.analysis.__name__, lmsweep.trials.__name__, lmsweep.orchestrator.__name__];"
        "listed = {f'lmsweep.{name}' for name in dir(lmsweep)};"
        "print(early, *names, lmsweep.load is lmsweep.analysis.load, set(names) <= listed)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    words = "set() lmsweep.analysis lmsweep.trials lmsweep.orchestrator True True\n"
    assert done.stdout == words, done.stderr


PUBLIC_UNDERSCORES = {"_repr_html_", "_asdict", "_replace", "_fields", "_value_"}
"""Names of Python's own named tuples and enums."""


def private_names_of_torch(tree: ast.Module) -> list[str]:
    """Each import, attribute or module name in a module that PyTorch keeps private.

    An attribute is another's if it begins with one underscore and the file neither defines nor sets it.
    """
    ours = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    ours |= {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_name(node.value, "self")
    }
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "torch":
                full = [f"{module}.{name.name}" for name in names]
            case ast.Import(names=names):
                full = [name.name for name in names if name.name.partition(".")[0] == "torch"]
            case ast.Constant(value=str(text)) if re.fullmatch(r"torch(\.\w+)+", text):
                full = [text]
            case ast.Attribute(attr=attr, value=value) if not is_name(value, "os", "sys", "functools"):
                full = [attr] if attr not in ours | PUBLIC_UNDERSCORES else []
            case _:
                continue
        found += [name for name in full if any(re.match(r"_[A-Za-z]", part) for part in name.split("."))]
    return found


def test_one_module_knows_the_private_names_of_torch():
    with_torch = [path for path in files("orchestrator") if touches(path, "torch")]
    others = {*files("trials"), *with_torch} - {TORCH_PRIVATE}
    found = {path: private_names_of_torch(tree_of(path)) for path in others}
    assert not {path: names for path, names in found.items() if names}
    assert private_names_of_torch(tree_of(TORCH_PRIVATE))


def test_the_product_replaces_nothing_by_mocks():
    assert not [path for package in MAY_IMPORT for path in files(package) if touches(path, "unittest", "mock")]


def test_no_record_writes_its_fields_again_as_json():
    """`record_json` writes them, and `json_schemas` describes them."""
    again = [
        path for package in MAY_IMPORT for path in files(package) if re.search("as_json|as_values", path.read_text())
    ]
    assert not again


DEFINED = re.compile(r"^ *(?:(?:async )?def|class) (_[a-zA-Z]\w*)|^ *(?:self\.)?(_[a-zA-Z]\w*)(?:: [^=\n]+)? = ", re.M)
"""A function, class, variable or attribute of a name with one underscore, where it is defined."""


def private_names(source: str) -> set[str]:
    return {name for names in DEFINED.findall(source) for name in names if name} - PUBLIC_UNDERSCORES


def test_tests_use_no_private_name_of_the_product():
    ours = [path for one in MAY_IMPORT for path in files(one) if not path.stem.endswith("_private")]
    private = set().union(*(private_names(path.read_text()) for path in ours))
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text()
        used = set(re.findall(r"\.(_[a-zA-Z]\w*)\b|lmsweep[\w.]* import (_\w+)", source))
        found = {name for names in used for name in names} & private - private_names(source)
        assert not found - {"_exit"}, path
