"""Finds what a sweep could measure in a folder of the user's code: from the syntax alone, nothing is imported."""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lmsweep.trials.code.source import is_reserved, roots
from lmsweep.trials.spec.reference import ATTENTION_MASKS, CAUSAL, MASKS, POSITIONS, TARGETS, TOKENS, Code

MAX_FILES = 3000
"""Most files that are read: a folder with more is not one project."""

_SKIPPED = frozenset(("site-packages", "node_modules", "build", "dist", "tests", "test", "results", "__pycache__"))
_HEADS = ("head", "unembed", "output", "to_logits")
_NAMES = ("lm", "gpt", "llama", "transformer", "model")

_KERNELS = frozenset(("jit", "autotune", "heuristics"))
"""Decorators of kernels in Triton, which are called by functions of tensors."""
_ATTENTION = (("q", "k", "v"), ("query", "key", "value"), ("queries", "keys", "values"))

Kind = Literal["model", "attention", "optimizer", "ddp"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a function or class, without `self`."""

    name: str
    required: bool
    annotation: str = ""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A class or function that a sweep may refer to."""

    kind: Kind
    reference: str
    """As a sweep file names it."""
    place: str
    """`mine/model.py:12`."""
    parameters: tuple[Parameter, ...]
    """What it is called with, after the tensors, the weights or the module that it works on."""
    settings: "Settings | None" = None
    """The class of its only required parameter, if that is an object with settings such as GPTConfig."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A class with the settings of a model."""

    reference: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A class or function that a sweep could measure only with something that the user writes."""

    kind: Kind
    reference: str
    place: str
    advice: str
    """Why, and what to write."""


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What was found, the likeliest first."""

    files: int
    """The number of files that were read."""
    unread: int
    """Files beyond MAX_FILES."""
    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]

    def of(self, kind: Kind) -> list[Candidate]:
        """Return the candidates of one kind."""
        return [one for one in self.candidates if one.kind == kind]


@dataclass(frozen=True, kw_only=True)
class _Class:
    """A class of the folder."""

    node: ast.ClassDef
    file: Path
    bases: frozenset[str]
    """Last names of its bases, `Module` for nn.Module, and of theirs in this folder."""
    methods: dict[str, ast.FunctionDef]

    def calls(self) -> set[str]:
        """The last name of everything that it calls."""
        return {_last(node.func) for node in ast.walk(self.node) if isinstance(node, ast.Call)}


def discover(code: Code) -> Discovery:
    """Return the models, attention functions, optimizers and wrappers that the folder defines."""
    files = [*_files(code)]
    trees = {file: tree for file in files[:MAX_FILES] if (tree := _parse(file)) is not None}
    classes = _classes(trees)
    found = [*_models(classes, code), *_attention(trees, classes, code), *_others(classes, code)]
    return Discovery(
        files=len(trees),
        unread=max(0, len(files) - MAX_FILES),
        candidates=tuple(one for one in found if isinstance(one, Candidate)),
        left_out=tuple(one for one in found if isinstance(one, LeftOut)),
    )


def _files(code: Code) -> Iterator[Path]:
    for folder, inside, files in os.walk(code.folder):
        skipped = (_SKIPPED, lambda name: name.startswith("."))
        inside[:] = sorted(
            name
            for name in inside
            if name not in skipped[0] and not skipped[1](name) and not Path(folder, name, "pyvenv.cfg").exists()
        )
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith(("test_", "conftest")):
                yield Path(folder, name)


def _parse(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):  # no code that could be imported
        return None


def _classes(trees: dict[Path, ast.Module]) -> list[_Class]:
    nodes = [(node, file) for file, tree in trees.items() for node in tree.body if isinstance(node, ast.ClassDef)]
    direct: dict[str, set[str]] = {}
    for node, _ in nodes:
        direct.setdefault(node.name, set()).update(_last(base) for base in node.bases)

    def all_bases(name: str, seen: frozenset[str]) -> frozenset[str]:
        more = direct.get(name, set()) - seen
        return seen.union(more, *(all_bases(base, seen | more) for base in more))

    return [
        _Class(
            node=node,
            file=file,
            bases=all_bases(node.name, frozenset()),
            methods={one.name: one for one in node.body if isinstance(one, ast.FunctionDef)},
        )
        for node, file in nodes
    ]


def _models(classes: list[_Class], code: Code) -> list[Candidate | LeftOut]:
    """Modules with an embedding, their own or a part's, and those whose forward requires what lmsweep does not give;
    the likeliest first.
    """
    modules = {one.node.name: one for one in classes if "Module" in one.bases}
    calls = {name: one.calls() for name, one in modules.items()}

    def embeds(name: str, seen: frozenset[str] = frozenset()) -> bool:
        parts = (calls[name] & modules.keys()) - seen - {name}
        return "Embedding" in calls[name] or any(embeds(part, seen | {name, part}) for part in parts)

    ranked: list[tuple[float, str, Candidate | LeftOut]] = []
    for name, one in modules.items():
        forward = one.methods.get("forward")
        if forward is None or "finish_gradient_synchronization" in one.methods or not embeds(name):
            continue
        is_part = any(name in calls[other] for other in modules if other != name)
        reference, place = _reference(one.file, name, code), _place(one.file, one.node, code)
        taken = _parameters(forward)
        if unknown := _not_given(taken):
            if not is_part and any(parameter.required for parameter in taken):
                advice = (
                    f"its forward also requires {', '.join(unknown)}: write a function that returns a module around "
                    f"it, whose forward(tokens) gives {unknown[0]}, and name the function"
                )
                ranked.append((0.0, reference, LeftOut(kind="model", reference=reference, place=place, advice=advice)))
            continue
        attributes = {node.attr.lower() for node in ast.walk(one.node) if isinstance(node, ast.Attribute)}
        score = 2.0 * ("Embedding" in calls[name])
        score += 2.0 * any(head in attribute for attribute in attributes for head in _HEADS)
        score += 1.0 * any(word in name.lower() for word in _NAMES)
        score -= 4.0 * is_part
        parameters = tuple(_parameters(one.methods["__init__"])) if "__init__" in one.methods else ()
        candidate = Candidate(
            kind="model",
            reference=reference,
            place=place,
            parameters=parameters,
            settings=_settings(parameters, one, classes, code),
        )
        ranked.append((-score, reference, candidate))
    return [candidate for *_, candidate in sorted(ranked, key=lambda row: row[:2])]


def _not_given(taken: list[Parameter]) -> list[str]:
    """Return the parameters that a forward requires and is not given; the first is the tokens."""
    tokens = next((one.name for one in taken if one.name in TOKENS), taken[0].name if taken else None)
    given = {tokens, *TARGETS, *MASKS, *POSITIONS}
    return [one.name for one in taken if one.required and one.name not in given]


def _settings(parameters: tuple[Parameter, ...], model: _Class, classes: list[_Class], code: Code) -> Settings | None:
    """Return the class of the settings that a model needs, if that is all it needs."""
    needed = [one for one in parameters if one.required]
    if len(needed) != 1 or needed[0].name not in ("config", "cfg", "args", "params", "hparams", "model_args"):
        return None
    wanted = needed[0].annotation.rpartition(".")[2].strip("'\"")
    near = [one for one in classes if one.file == model.file and one.node.name.endswith(("Config", "Args"))]
    named = [one for one in classes if one.node.name == wanted] or ([] if wanted else near)
    if not named:
        return None
    imported = _imported_from(model.file).get(wanted, "")
    found = min(named, key=lambda one: (one.file != model.file, _reference(one.file, "", code) != f"{imported}:"))
    if any(_reference(one.file, one.node.name, code).startswith("./") for one in (model, found)):
        return None  # a file that no import statement can name
    is_dataclass = any(
        _last(one.func if isinstance(one, ast.Call) else one) == "dataclass" for one in found.node.decorator_list
    )
    if is_dataclass:
        fields = [one for one in found.node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
        given = tuple(
            Parameter(name=ast.unparse(one.target), required=one.value is None, annotation=ast.unparse(one.annotation))
            for one in fields
        )
    elif "__init__" in found.methods:
        given = tuple(_parameters(found.methods["__init__"]))
    else:
        return None
    return Settings(reference=_reference(found.file, found.node.name, code), parameters=given)


def _imported_from(file: Path) -> dict[str, str]:
    """Return the names that a file imports from modules that it names in full, each with its module."""
    tree = _parse(file)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)] if tree else []
    return {one.name: node.module for node in nodes if node.module and not node.level for one in node.names}


def _attention(trees: dict[Path, ast.Module], classes: list[_Class], code: Code) -> Iterator[Candidate | LeftOut]:
    """Functions, autograd.Functions and modules whose first parameters are queries, keys and values."""
    functions = [
        (node.name, node, node, file)
        for file, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not {_last(one) for one in node.decorator_list} & _KERNELS
    ]
    of_classes = [
        (one.node.name, one.node, one.methods["forward"], one.file)
        for one in classes
        if one.bases & {"Function", "Module"} and "forward" in one.methods
    ]
    modules = {one.node for one in classes if "Module" in one.bases}
    for name, node, function, file in (*of_classes, *functions):
        taken = _parameters(function, skip=isinstance(node, ast.ClassDef))
        first = tuple(one.name.lower() for one in taken[:3])
        if name.startswith("_") or first not in _ATTENTION:
            continue
        others = tuple(taken[3:])
        reference, place = _reference(file, name, code), _place(file, node, code)
        called = name if isinstance(node, ast.FunctionDef) else f"{name}(...)" if node in modules else f"{name}.apply"
        if why := _no_attention(called, function, others):
            advice = f"{why}: write def attend(q, k, v): return {_call_of(called, function, others)}, and name attend"
            yield LeftOut(kind="attention", reference=reference, place=place, advice=advice)
        else:
            yield Candidate(kind="attention", reference=reference, place=place, parameters=others)


def _no_attention(called: str, function: ast.FunctionDef, others: tuple[Parameter, ...]) -> str | None:
    """Return why lmsweep cannot call this as attention; None if it can. `called` is what Python calls."""
    masks = (*CAUSAL, *(() if called.endswith(".apply") else ATTENTION_MASKS))
    if called.endswith("(...)"):
        return "it is a module"
    if _returns_several(function):
        return "it returns more than the output"
    if needed := [one.name for one in others if one.required and one.name not in masks]:
        return f"it also needs {', '.join(needed)}"
    if others and not any(one.name in masks for one in others):
        return f"it has {others[0].name} but no is_causal"
    return None


def _call_of(called: str, function: ast.FunctionDef, others: tuple[Parameter, ...]) -> str:
    given = "".join(f", {one.name}=..." for one in others if one.required and one.name not in CAUSAL)
    return f"{called}(q, k, v{given}){'[0]' if _returns_several(function) else ''}"


def _returns_several(function: ast.FunctionDef) -> bool:
    """Whether it returns more than a tensor, as the forward part of a kernel does."""
    inner = {id(node) for one in ast.walk(function) if _is_inner(one, function) for node in ast.walk(one)}
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and id(node) not in inner]
    return any(isinstance(value, ast.Tuple) for value in returns) or (
        function.returns is not None and ast.unparse(function.returns).lower().startswith("tuple[")
    )


def _is_inner(node: ast.AST, function: ast.FunctionDef) -> bool:
    """Whether this is a function within the function, such as the grid of a kernel in Triton."""
    return node is not function and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _others(classes: list[_Class], code: Code) -> Iterator[Candidate | LeftOut]:
    """Optimizers and data-parallel wrappers."""
    for one in classes:
        kind: Kind
        if "Optimizer" in one.bases and "step" in one.methods:
            kind = "optimizer"
        elif "finish_gradient_synchronization" in one.methods:
            kind = "ddp"
        else:
            continue
        taken = _parameters(one.methods["__init__"]) if "__init__" in one.methods else []
        name = one.node.name
        reference, place = _reference(one.file, name, code), _place(one.file, one.node, code)
        if taken and taken[0].name == "param_groups":
            advice = (
                f"it takes groups that its training loop makes: write def make(params): return {name}(...), name make"
            )
            yield LeftOut(kind=kind, reference=reference, place=place, advice=advice)
            continue
        yield Candidate(kind=kind, reference=reference, place=place, parameters=tuple(taken[1:]))


def _parameters(function: ast.FunctionDef, *, skip: bool = True) -> list[Parameter]:
    """Return the named parameters; `skip` leaves out the first, self or ctx."""
    by_place = [*function.args.posonlyargs, *function.args.args]
    without = len(by_place) - len(function.args.defaults)
    pairs = [(one, index < without) for index, one in enumerate(by_place)][skip:]
    pairs += [
        (one, value is None) for one, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    ]
    return [
        Parameter(name=one.arg, required=required, annotation=ast.unparse(one.annotation) if one.annotation else "")
        for one, required in pairs
    ]


def _last(node: ast.expr) -> str:
    """Return `Module` for `nn.Module` or `Module`, and for `Generic[T]` its `Generic`; for `jit()` its `jit`."""
    if isinstance(node, ast.Call):
        return _last(node.func)
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _reference(file: Path, name: str, code: Code) -> str:
    """Return `mine.model:Model`, or `./scripts/my-model.py:Model` if its file cannot be imported by a dotted name."""
    root = next(root for root in reversed(roots(code)) if file.is_relative_to(root))
    parts = list(file.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    if all(part.isidentifier() for part in parts) and not is_reserved(parts[0]):
        return f"{'.'.join(parts)}:{name}"
    return f"./{file.relative_to(code.folder).as_posix()}:{name}"


def _place(file: Path, node: ast.stmt, code: Code) -> str:
    return f"{file.relative_to(code.folder)}:{node.lineno}"
