"""Finds what a sweep could measure in a folder of the user's code."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from lmsweep.orchestrator.features.init.definitions import (
    Candidate,
    Class,
    Kind,
    LeftOut,
    Parameter,
    classes_of,
    hidden_packages,
    is_archived,
    last_name,
    parameters_of,
    place_of,
    python_files,
    reference_to,
)
from lmsweep.orchestrator.features.init.model_candidates import models, models_without_tokens
from lmsweep.trials.code.project import text_of
from lmsweep.trials.code.source import parse
from lmsweep.trials.spec.reference import ATTENTION_MASKS, CAUSAL, FINISH, Code

MAX_FILES = 3000
"""Most files that are read: a folder with more is not one project."""

_KERNELS = frozenset(("jit", "autotune", "heuristics"))
"""Decorators of kernels in Triton. A kernel takes pointers; the candidate is the function that calls it."""
_ATTENTION = (("q", "k", "v"), ("query", "key", "value"), ("queries", "keys", "values"))


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What a folder's code defines that a sweep could measure, the likeliest first."""

    files: int
    """The number of files that were read."""
    unread: int
    """Files beyond MAX_FILES."""
    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]

    def of(self, kind: Kind) -> list[Candidate]:
        return [one for one in self.candidates if one.kind == kind]


def discover(code: Code) -> Discovery:
    """Return the models, attention functions, optimizers and wrappers that the folder defines."""
    hidden = hidden_packages(code)
    readable = (file for file in python_files(code) if not hidden.intersection(file.parents))
    files = sorted(readable, key=lambda file: is_archived(file, code))  # archived ones last: MAX_FILES cuts the end off
    trees = {file: tree for file in files[:MAX_FILES] if (tree := parse(file)) is not None}
    classes = classes_of(trees, code)
    everything = [
        *models(classes, code),
        *models_without_tokens(classes),
        *_pretrained(trees, code),
        *_attention(trees, classes, code),
        *_optimizers_and_wrappers(classes),
    ]
    return Discovery(
        files=len(trees),
        unread=max(0, len(files) - MAX_FILES),
        candidates=tuple(one for one in everything if isinstance(one, Candidate)),
        left_out=tuple(one for one in everything if isinstance(one, LeftOut)),
    )


def _pretrained(trees: dict[Path, ast.Module], code: Code) -> Iterator[LeftOut]:
    """Yield the first call that loads a language model of transformers, as scripts do that train an adapter."""
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            model = last_name(node.func.value)
            if node.func.attr == "from_pretrained" and model.endswith("ForCausalLM"):
                advice = (
                    "no weights are loaded: write model: hf:NAME, or, for an adapter around it, def build(): return "
                    'get_peft_model(AutoModelForCausalLM.from_config(CONFIG), ...), and model: "./FILE.py:build"'
                )
                place = place_of(file, node, code)
                yield LeftOut(kind="model", reference=f"{model}.from_pretrained", place=place, advice=advice)
                return


class _Attention(NamedTuple):
    """A function or class that may be attention."""

    name: str
    form: Literal["function", "autograd function", "module"]
    node: ast.FunctionDef | ast.ClassDef
    function: ast.FunctionDef
    """It, or the `forward` of the class."""
    file: Path

    @property
    def called(self) -> str:
        return self.name + {"function": "", "autograd function": ".apply", "module": "(...)"}[self.form]


def _attention(trees: dict[Path, ast.Module], classes: list[Class], code: Code) -> Iterator[Candidate | LeftOut]:
    """Yield the functions and the forwards of classes whose first parameters are those of attention."""
    definitions: list[_Attention] = []
    for cls in classes:
        if cls.bases & {"Function", "Module"} and (forward := cls.methods.get("forward")):
            form: Literal["module", "autograd function"] = "module" if "Module" in cls.bases else "autograd function"
            definitions.append(_Attention(cls.name, form, cls.node, forward, cls.file))
    for file, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not {last_name(one) for one in node.decorator_list} & _KERNELS:
                definitions.append(_Attention(node.name, "function", node, node, file))
    for one in definitions:
        taken = parameters_of(one.function, skip=one.form != "function")
        if one.name.startswith("_") or tuple(parameter.name.lower() for parameter in taken[:3]) not in _ATTENTION:
            continue
        beyond_qkv = tuple(taken[3:])
        reference, place = reference_to(one.file, one.name, code), place_of(one.file, one.node, code)
        if why := _why_not_attention(one, beyond_qkv):
            required = [parameter.name for parameter in beyond_qkv if parameter.required]
            given = "".join(f", {name}=..." for name in required if name not in CAUSAL)
            call = f"{one.called}(q, k, v{given}){'[0]' if _returns_several(one.function) else ''}"
            advice = f"{why}: write def attend(q, k, v): return {call}, and name attend"
            yield LeftOut(kind="attention", reference=reference, place=place, advice=advice)
        else:
            yield Candidate(kind="attention", reference=reference, place=place, parameters=beyond_qkv)


def _why_not_attention(attention: _Attention, beyond_qkv: tuple[Parameter, ...]) -> str | None:
    """Return why lmsweep cannot call this with queries, keys, values and a mask; None if it can."""
    if attention.form == "module":
        return "it is a module"
    if _returns_several(attention.function):
        return "it returns more than the output"
    # `apply` of an autograd.Function takes nothing by name, so a mask cannot be given to it.
    masks = CAUSAL if attention.form == "autograd function" else (*CAUSAL, *ATTENTION_MASKS)
    if needed := [one.name for one in beyond_qkv if one.required and one.name not in masks]:
        return f"it also needs {', '.join(needed)}"
    if beyond_qkv and not any(one.name in masks for one in beyond_qkv):
        return f"it has {beyond_qkv[0].name} but no is_causal"
    return None


def _returns_several(function: ast.FunctionDef) -> bool:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    # What a function within it returns does not count, such as the grid of a kernel in Triton.
    inner = [one for one in ast.walk(function) if isinstance(one, functions) and one is not function]
    theirs = {id(node) for one in inner for node in ast.walk(one)}
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and id(node) not in theirs]
    return any(isinstance(value, ast.Tuple) for value in returns) or (
        function.returns is not None and text_of(function.returns).lower().startswith("tuple[")
    )


def _optimizers_and_wrappers(classes: list[Class]) -> Iterator[Candidate | LeftOut]:
    """Yield the optimizers, and the wrappers that synchronise gradients: FINISH is their method that waits for them."""
    for cls in classes:
        kind: Kind
        if "Optimizer" in cls.bases and "step" in cls.methods:
            kind = "optimizer"
        elif FINISH in cls.methods:
            kind = "ddp"
        else:
            continue
        if cls.parameters and cls.parameters[0].name == "param_groups":
            advice = (
                "it takes groups that its training loop makes: "
                f"write def make(params): return {cls.name}(...), name make"
            )
            yield LeftOut(kind=kind, reference=cls.reference, place=cls.place, advice=advice)
        else:
            yield Candidate(
                kind=kind,
                reference=cls.reference,
                place=cls.place,
                parameters=cls.parameters[1:],  # without the first: the weights, or the module
            )
