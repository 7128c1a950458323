"""Which packages the user's code imports that are not installed: all of them, and the command that installs them."""

import ast
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from lmsweep.trials.code.project import projects
from lmsweep.trials.code.source import is_users_file, is_users_module, parse, roots
from lmsweep.trials.spec.reference import Code

DISTRIBUTIONS = {"PIL": "pillow", "cv2": "opencv-python", "dotenv": "python-dotenv", "sklearn": "scikit-learn"}
DISTRIBUTIONS |= {"skimage": "scikit-image", "yaml": "pyyaml", "google": "protobuf", "dateutil": "python-dateutil"}
"""Modules whose distribution has another name."""

_FORGIVEN = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def missing_packages(files: Iterable[Path], code: Code) -> list[str]:
    """Return the top-level modules that importing these files of the user's needs and that are not installed.

    Imports in functions, under `if`, and in a `try` that continues without them do not count. Runs none of the code.
    """
    waiting = [found for file in files for found in (file, *_packages_of(file))]
    seen, names = set[Path](), set[str]()
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for level, name in _imported(file):
            places = [file.parents[level - 1]] if level else roots(code)
            waiting += [found for place in places for found in _files_of(place, name.split("."))]
            top = name.partition(".")[0]
            if (
                not level
                and not (file.parent / f"{top}.py").exists()
                and not is_users_module(top, code)
                and not _is_installed(top)
            ):
                names.add(top)
    return sorted(names)


def install_words(names: Iterable[str], code: Code) -> str:
    """Return which of these modules are not installed, and the command that installs them into this environment."""
    there = {name: place for name in sorted(names) if (place := _elsewhere(name, code))}
    words = [
        f"{name} is {place.relative_to(code.folder)}: give the folder that your code imports from by "
        f"--code {place.parent.relative_to(code.folder)}"
        for name, place in there.items()
    ]
    if absent := sorted({*names} - there.keys()):
        known = projects(code)
        wanted: list[str] = []
        for name in (DISTRIBUTIONS.get(name, name) for name in absent):
            wanted += next((found for one in known if (found := one.requirement(name))), [name])
        them = "it" if len(absent) == 1 else "them"
        words.append(f"not installed here: {', '.join(absent)}; install {them}: {shlex.join([*_installer(), *wanted])}")
    return "; ".join(words)


def not_built(message: str, file: Path, code: Code) -> str:
    """Return what to run if the user's package imports a part that is compiled when it is installed, else ''."""
    found = re.match(r"cannot import name '(\w+)' from partially initialized module '([\w.]+)'", message)
    if not found or (file.parent / f"{found[1]}.py").exists() or (file.parent / found[1]).is_dir():
        return ""
    inside = [folder for folder in file.parents if folder.is_relative_to(code.folder)]
    project = next((one for one in inside if (one / "pyproject.toml").is_file()), None)
    command = f": {shlex.join([*_installer(), '-e', str(project)])}" if project else ""
    return f"; {found[2]} has no {found[1]}.py, so it is probably compiled when the project is installed{command}"


def _installer() -> list[str]:
    if not find_spec("pip"):  # an environment that uv made
        return ["uv", "pip", "install", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install"]


def _imported(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the modules that importing a file needs, with the number of dots before their names."""
    tree = parse(file)
    waiting = [*tree.body] if tree else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, ".".join(filter(None, (node.module, alias.name)))) for alias in node.names)
        elif isinstance(node, ast.With | ast.ClassDef):
            waiting += node.body
        elif isinstance(node, ast.Try) and not any(_forgives(handler) for handler in node.handlers):
            waiting += [*node.body, *node.finalbody]


def _forgives(handler: ast.ExceptHandler) -> bool:
    named = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else _FORGIVEN
    return bool(named & _FORGIVEN)


def _files_of(place: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the files that importing `a.b` from a folder runs, those of its packages included."""
    for end in range(1, len(parts) + 1):
        path = place.joinpath(*parts[:end])
        yield from (file for file in (path / "__init__.py", path.with_name(f"{path.name}.py")) if file.is_file())


def _packages_of(file: Path) -> Iterator[Path]:
    """Yield the files of the packages that a file is in, which Python runs before it."""
    for folder in file.parents:
        if not (folder / "__init__.py").is_file():
            return
        yield folder / "__init__.py"


def _is_installed(name: str) -> bool:
    try:
        return name in sys.modules or find_spec(name) is not None
    except ValueError:  # a module without a specification, which is there
        return True


def _elsewhere(name: str, code: Code) -> Path | None:
    folder = Path(code.folder)
    patterns = (f"*/{name}.py", f"*/*/{name}.py", f"*/{name}/__init__.py")
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        if is_users_file(path, code) and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            return path if path.stem == name else path.parent
    return None
