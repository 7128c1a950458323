"""Reads the classes and functions that the files of a folder define, from the syntax alone."""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from lmsweep.trials.code.project import text_of
from lmsweep.trials.code.source import is_reserved, roots
from lmsweep.trials.spec.reference import Code

Kind = Literal["model", "attention", "optimizer", "ddp"]

_SKIPPED = frozenset(("site-packages", "node_modules", "build", "dist", "tests", "test", "results", "__pycache__"))
_ARCHIVES = frozenset(
    ("archive", "archives", "archived", "records", "old", "legacy", "deprecated", "backup", "backups")
)
"""Folders with copies of code that was in use once."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a function or class, without `self`."""

    name: str
    required: bool
    annotation: str = ""
    default: str = ""
    """As it is written; empty if there is none, or if it is not known."""

    @property
    def number(self) -> int | None:
        """The default, if it is written as a whole number."""
        digits = self.default.replace("_", "")
        return int(digits) if digits.isdecimal() else None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a model is built whose class takes more than numbers."""

    parameters: tuple[Parameter, ...]
    """What is given by name: fields of a settings object, keys of a mapping, parameters of a function."""
    body: str
    """The statements that return the model; `{given}` stands for the arguments."""
    imports: tuple[str, ...]
    """References to what the statements name."""
    beside: str | None = None
    """The folder of its file, relative to the code folder, if no import statement can name that file."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A class or function that a sweep may refer to."""

    kind: Kind
    reference: str
    """Reference to it, as in a sweep file."""
    place: str
    parameters: tuple[Parameter, ...]
    """What it is called with, after the tensors, the weights or the module that it works on."""
    is_likely: bool = True
    """Whether it looks like a whole: a model with embedding and head, not a part of one."""
    ways: tuple[Settings, ...] = ()
    """How it may be built, if not from its parameters alone; the best first."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A class or function that a sweep could measure only with something that the user writes."""

    kind: Kind
    reference: str
    place: str
    advice: str
    """Why, and what to write."""
    is_likely: bool = False
    """Whether it is probably what the folder is about: a complete language model."""


@dataclass(frozen=True, kw_only=True)
class Class:
    node: ast.ClassDef
    file: Path
    bases: frozenset[str]
    """Last names of its bases, `Module` for nn.Module, and of theirs in this folder."""
    methods: dict[str, ast.FunctionDef]
    code: Code

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def reference(self) -> str:
        return reference_to(self.file, self.name, self.code)

    @property
    def place(self) -> str:
        return place_of(self.file, self.node, self.code)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters of its constructor."""
        return self.parameters_of("__init__")

    def parameters_of(self, method: str) -> tuple[Parameter, ...]:
        """Return the parameters of a method, none if the class does not define it."""
        return tuple(parameters_of(self.methods[method])) if method in self.methods else ()

    @cached_property
    def calls(self) -> frozenset[str]:
        """Last names of the functions that it calls."""
        return frozenset({last_name(node.func) for node in ast.walk(self.node) if isinstance(node, ast.Call)})


def python_files(code: Code) -> Iterator[Path]:
    """Yield the files of a folder that may define what a sweep measures."""
    for folder, inside, files in os.walk(code.folder):
        inside[:] = sorted(
            name
            for name in inside
            if name not in _SKIPPED and not name.startswith(".") and not Path(folder, name, "pyvenv.cfg").exists()
        )
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith(("test_", "conftest")):
                yield Path(folder, name)


def hidden_packages(code: Code) -> frozenset[Path]:
    """Return packages that cannot be imported because a package of an earlier root has the same name."""
    seen: dict[str, Path] = {}
    hidden = set()
    for root in roots(code):
        for package in sorted(file.parent for file in root.glob("*/__init__.py")):
            if seen.setdefault(package.name, package) != package:
                hidden.add(package)
    return frozenset(hidden)


def is_archived(file: Path, code: Code) -> bool:
    """Return whether a file is in a folder with earlier states of the code."""
    return any(part.lower() in _ARCHIVES for part in file.relative_to(code.folder).parts[:-1])


def classes_of(trees: dict[Path, ast.Module], code: Code) -> list[Class]:
    """Return the classes at the top of these files."""
    nodes = [(node, file) for file, tree in trees.items() for node in tree.body if isinstance(node, ast.ClassDef)]
    # Name -> the names of its bases. A base is known by its name only, so classes of one name count as one.
    direct: dict[str, set[str]] = {}
    for node, _ in nodes:
        direct.setdefault(node.name, set()).update(last_name(base) for base in node.bases)

    def all_bases(name: str) -> frozenset[str]:
        bases: set[str] = set()
        waiting = [name]
        while waiting:
            new = direct.get(waiting.pop(), set()) - bases
            bases |= new
            waiting += new
        return frozenset(bases)

    return [
        Class(
            node=node,
            file=file,
            bases=all_bases(node.name),
            methods={one.name: one for one in node.body if isinstance(one, ast.FunctionDef)},
            code=code,
        )
        for node, file in nodes
    ]


def parameters_of(function: ast.FunctionDef, *, skip: bool = True) -> list[Parameter]:
    """Return the named parameters; `skip` leaves out the first, self or ctx."""
    by_place = [*function.args.posonlyargs, *function.args.args]
    without = len(by_place) - len(function.args.defaults)  # the last ones have the defaults
    values: list[ast.expr | None] = [*[None] * without, *function.args.defaults]
    pairs = [
        *zip(by_place, values, strict=True),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    return [parameter_of(one.arg, one.annotation, value) for one, value in (pairs[1:] if skip else pairs)]


def parameter_of(name: str, annotation: ast.expr | None, default: ast.expr | None) -> Parameter:
    """Return a parameter by its syntax."""
    return Parameter(
        name=name,
        required=default is None,
        annotation=text_of(annotation) if annotation else "",
        default=text_of(default) if default else "",
    )


def last_name(node: ast.expr) -> str:
    """Return `Module` for `nn.Module` or `Module`, and for `Generic[T]` its `Generic`; for `jit()` its `jit`."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def reference_to(file: Path, name: str, code: Code) -> str:
    """Return `mine.model:Model`, or `./scripts/my-model.py:Model` if its file cannot be imported by a dotted name."""
    root = next(root for root in reversed(roots(code)) if file.is_relative_to(root))  # the deepest, such as `src`
    parts = list(file.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    if all(part.isidentifier() for part in parts) and not is_reserved(parts[0]):
        return f"{'.'.join(parts)}:{name}"
    return f"./{file.relative_to(code.folder).as_posix()}:{name}"


def place_of(file: Path, node: ast.stmt | ast.expr, code: Code) -> str:
    """Return `mine/model.py:12`."""
    return f"{file.relative_to(code.folder)}:{node.lineno}"
