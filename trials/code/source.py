"""Finds the source file of a reference without importing anything, and refuses what is not the user's code.

A sweep file may come from a stranger. What it names is called only if it is defined in the code folder, is registered
by an installed package's entry point, or is in a package that the user trusts by name.
"""

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from lmsweep.trials.code.ownership import hidden_folder, is_users_file, why_no_code_folder
from lmsweep.trials.code.project import other_python, project_files, syntax_of, text_of
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.reference import Code, Reference, parse_reference
from lmsweep.trials.spec.suggestions import did_you_mean

ENTRY_POINTS = ("lmsweep.models", "lmsweep.attention", "lmsweep.optimizers", "lmsweep.workloads")
"""The groups in which an installed package registers what references may lead to."""

OURS = frozenset(
    (
        *("lmsweep", "torch", "torchgen", "functorch", "triton", "numpy", "scipy", "pandas", "pyarrow", "ray"),
        *("pydantic", "pydantic_core", "typer", "click", "rich", "yaml", "nvtx", "psutil", "pynvml", "packaging"),
        *("sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock", "typing_extensions"),
        *("nvidia", "cuda", "transformers", "tokenizers", "safetensors", "huggingface_hub", "torchao", "setuptools"),
        *("pkg_resources", "attr", "msgpack", "requests", "certifi", "cffi", "optuna", "plotly", "jsonschema"),
    )
)
"""Packages that lmsweep and torch import, some of them late. A folder's file of such a name is never imported."""

DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def is_reserved(name: str) -> bool:
    """Return whether a top-level module of this name in the code folder would hide one that others need."""
    return name in OURS or name in sys.stdlib_module_names


def roots(code: Code) -> list[Path]:
    """Return the code folder, the projects in it (with a pyproject.toml, as packages/NAME), and `src` of each."""
    projects = [file.parent for file in project_files(code)]
    folders = dict.fromkeys([Path(code.folder), *projects])
    return [place for root in folders for place in (root, root / "src") if place.is_dir()]


def check_reference(text: str, code: Code) -> None:
    """Raise RequestError unless the reference names something that the user's code defines. Runs none of it."""
    reference = parse_reference(text)
    path = find_source(reference, code)
    if path is not None:
        _check_attribute(reference, path, code)


def find_source(reference: Reference, code: Code) -> Path | None:
    """Return a reference's file, None in a trusted package or if an installed one registers exactly this name.

    Raises RequestError if it is in neither place, and if the code folder is part of Python or of installed packages.
    """
    top, *rest = (reference.module or "").split(".")
    if top in code.trusted:
        if find_spec(top) is None:
            raise RequestError(f"{reference.where}: the trusted package {top} is not installed")
        return None
    if is_registered(str(reference)):
        return None
    if why := why_no_code_folder(Path(code.folder)):
        raise RequestError(f"--code {code.folder}: it {why}; name the folder of your own code, or a --trust PACKAGE")
    if reference.file is not None:
        return _inside(Path(code.folder) / reference.file, reference, code)
    assert reference.module is not None, "a reference names a file or a module"
    if is_reserved(top):
        kind = "part of Python" if top in sys.stdlib_module_names else "an installed package"
        hidden = [root for root in roots(code) if (root / f"{top}.py").exists() or (root / top).is_dir()]
        advice = (
            f"rename {hidden[0] / top}, or write it as ./file.py:name"
            if hidden
            else f"a reference leads to your own code in {code.folder}, or to a package named by --trust"
        )
        raise RequestError(f"{reference}: {top} is {kind}; {advice}")
    for root in roots(code):
        path = root.joinpath(top, *rest)
        for candidate in (path / "__init__.py", path.with_name(f"{path.name}.py")):
            if candidate.exists():
                return _inside(candidate, reference, code)
    names = [file.stem for root in roots(code) for file in root.glob("*.py")]
    names += [folder.name for root in roots(code) for folder in root.iterdir() if (folder / "__init__.py").exists()]
    end = f"{did_you_mean(reference.module, names)} (--code names the folder with your code)"
    if top in trusted_packages(code):
        end = f", and the installed package {top} does not register this name; add --trust {top}"
    raise RequestError(f"{reference}: there is no module {reference.module} in {code.folder}{end}")


def parameters_of(text: str, code: Code) -> frozenset[str]:
    """Return the names of the parameters of a function or class, none where its file does not say.

    `**kwargs` adds none: the user's code is called with the fields that its signature names.
    """
    reference = parse_reference(text)
    path = find_source(reference, code)
    tree = parse(path) if path else None
    named: dict[str, ast.stmt | ast.expr] = {}
    for node in statements(tree.body) if tree else ():
        if isinstance(node, DEFINITION):
            named[node.name] = node
        elif isinstance(node, ast.Assign):
            named |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
    found = named.pop(reference.attribute, None)  # popped, so that names in a circle end
    while isinstance(found, ast.Name | ast.Call):  # make = other, make = partial(other, ...)
        inner = found if isinstance(found, ast.Name) else next(iter(found.args), None)
        found = named.pop(inner.id, None) if isinstance(inner, ast.Name) else None
    if isinstance(found, ast.ClassDef):
        found = next((one for one in found.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    if not isinstance(found, ast.FunctionDef):
        return frozenset()
    given = found.args
    return frozenset(one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs))


@cache
def registered_references() -> frozenset[str]:
    """Return what installed packages register by entry points, as references."""
    return frozenset(
        f"{offered.module}:{offered.attr}" for group in ENTRY_POINTS for offered in entry_points(group=group)
    )


def is_registered(text: str) -> bool:
    """Return whether an installed package registers exactly this reference by an entry point."""
    return text in registered_references()


def trusted_packages(code: Code) -> set[str]:
    """Return the installed packages, by import name, that references may lead to."""
    return {*code.trusted, *(text.partition(":")[0].partition(".")[0] for text in registered_references())}


def parse(file: Path) -> ast.Module | None:
    """Return the syntax of a file, None if it is no Python."""
    try:
        return syntax_of(file)
    except (SyntaxError, OSError):
        return None


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield the top-level name of every absolute import in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def is_users_module(name: str, code: Code) -> bool:
    """Return whether the code folder has a top-level module or package of this name."""
    return any((root / f"{name}.py").exists() or (root / name).is_dir() for root in roots(code))


def _inside(path: Path, reference: Reference, code: Code) -> Path:
    if not path.exists():
        near = did_you_mean(path.name, [other.name for other in path.parent.glob("*.py")])
        raise RequestError(f"{reference}: there is no file {path}{near}")
    if not is_users_file(path, code):
        raise RequestError(
            f"{reference}: {path} leads out of the code folder {code.folder}, or to what an installer has put there"
        )
    if hidden := hidden_folder(path, code):
        raise RequestError(
            f"{reference}: {hidden} is a hidden folder, where tools keep their files; move {path} out of it"
        )
    return path


def _check_attribute(reference: Reference, path: Path, code: Code) -> None:
    try:
        tree = syntax_of(path)
    except SyntaxError as error:
        words = f"{type(error).__name__}: {error.msg}{other_python(code)}"
        raise RequestError(f"{path}:{error.lineno or 1}: {words}") from None
    first = reference.attribute.partition(".")[0]
    origins = _origins(tree)
    if first not in origins:
        if "*" in origins or "__getattr__" in origins:
            return
        raise RequestError(f"{path}:1: defines no {first}{did_you_mean(first, origins)}")
    if (todo := _to_write(reference.attribute, tree)) is not None:
        node, words = todo
        raise RequestError(f"{path}:{node.lineno}: {node.name} is not written yet{f': {words}' if words else ''}")
    if origin := _outsider(tuple(reference.attribute.split(".")), path, code, set()):
        raise RequestError(
            f"{path}:1: {first} is imported from {origin}; a reference must lead to what your own code defines "
            f"(write a function around it, or add --trust {origin})"
        )


def _to_write(name: str, tree: ast.Module) -> tuple[ast.FunctionDef, str] | None:
    """Return the function of this name, with its message, if all it does is to raise NotImplementedError."""
    named = [node for node in statements(tree.body) if isinstance(node, ast.FunctionDef) and node.name == name]
    if not named:
        return None
    *before, last = named[-1].body
    only_raises = all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in before)  # docstring
    raised = last.exc if isinstance(last, ast.Raise) and only_raises else None
    kind, words = (raised.func, raised.args) if isinstance(raised, ast.Call) else (raised, [])
    if not isinstance(kind, ast.Name) or kind.id != "NotImplementedError":
        return None
    return named[-1], str(words[0].value) if words and isinstance(words[0], ast.Constant) else ""


def _outsider(names: tuple[str, ...], file: Path, code: Code, seen: set[object]) -> str | None:
    """Return the top-level module, not of the user, from which a file imports a dotted name; None if the user's files
    define it, or do not show where it is from. Follows imports from one of these files to the next. The process of a
    trial checks the object itself, too."""
    tree = parse(file)
    if tree is None or (file, names) in seen:
        return None
    seen.add((file, names))
    origins = _origins(tree)
    if names[0] not in origins:
        return "builtins" if hasattr(builtins, names[0]) else None
    if (origin := origins[names[0]]) is None:
        return None
    level, whole = origin.level, (*origin.names, *names[1:])  # by its names in the module that it is from
    if level is None:  # another name for one of this file
        return _outsider(whole, file, code, seen)
    if level == 0 and whole[0] in code.trusted:
        return None
    if level == 0 and (is_reserved(whole[0]) or not is_users_module(whole[0], code)):
        return whole[0]
    # The dots lead to one folder, or to none if there are more dots than folders.
    module, inside = _module_with(whole, roots(code) if level == 0 else file.parents[level - 1 : level], code)
    return _outsider(inside, module, code, seen) if module and inside else None


def _module_with(names: tuple[str, ...], folders: Sequence[Path], code: Code) -> tuple[Path | None, tuple[str, ...]]:
    """Return the user's module to which the longest part of a dotted name leads, and the rest, names inside of it."""
    for folder in folders:
        for end in range(len(names), 0, -1):
            path = folder.joinpath(*names[:end])
            for module in (path / "__init__.py", path.with_name(f"{path.name}.py")):
                if module.is_file() and is_users_file(module, code):
                    return module, names[end:]
    return None, ()


class _Origin(NamedTuple):
    """The module and names from which a file imports a name."""

    level: int | None
    """The dots of `from .module import name`; None if it is another name for `names` in the same file."""
    names: tuple[str, ...]


def _origins(tree: ast.Module) -> dict[str, _Origin | None]:
    """Return the names of a module, each with its origin, None if the module defines it."""
    found: dict[str, _Origin | None] = {}
    for node in statements(tree.body):
        if isinstance(node, DEFINITION):
            found[node.name] = None
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                names = (name.id for name in ast.walk(target) if isinstance(name, ast.Name))
                found |= dict.fromkeys(names, _other_name(node.value) if isinstance(target, ast.Name) else None)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = tuple(alias.name.split("."))
                found[alias.asname or parts[0]] = _Origin(0, parts if alias.asname else parts[:1])
        elif isinstance(node, ast.ImportFrom):
            module = tuple((node.module or "").split(".")) if node.module else ()
            found |= {alias.asname or alias.name: _Origin(node.level, (*module, alias.name)) for alias in node.names}
    return found


def _other_name(value: ast.expr | None) -> _Origin | None:
    """Return the origin of `name` in `name = a.b`; None if the value is no dotted name."""
    parts = text_of(value).split(".") if isinstance(value, ast.Name | ast.Attribute) else []
    return _Origin(None, tuple(parts)) if parts and all(map(str.isidentifier, parts)) else None


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements at the top of a module, those in `if`, `try` and `with` too."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for part in (node, *getattr(node, "handlers", ())):
                for name in ("body", "orelse", "finalbody"):
                    yield from statements(getattr(part, name, ()))
