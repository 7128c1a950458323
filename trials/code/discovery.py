"""Finds what a sweep could measure in a folder of the user's code: from the syntax alone, nothing is imported."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lmsweep.trials.code.definitions import (
    Class,
    Parameter,
    classes_of,
    last_name,
    parameters_of,
    parse,
    place_of,
    python_files,
    reference_to,
)
from lmsweep.trials.spec.reference import ATTENTION_MASKS, CAUSAL, MASKS, POSITIONS, TARGETS, TOKENS, Code

MAX_FILES = 3000
"""Most files that are read: a folder with more is not one project."""

_HEADS = ("head", "unembed", "output", "to_logits")
_OF_ATTENTION = ("heads", "d_head", "dim_head", "head_dim", "head_size")
"""Endings of attributes that are about attention heads."""
_NAMES = ("lm", "gpt", "llama", "transformer", "model")

_MODULES = frozenset(("Module", "PreTrainedModel"))
"""Classes of PyTorch and transformers that a model derives from."""
_OTHER_EMBEDDINGS = ("rotary", "rope", "position", "sinus", "patch", "time")
"""Words in the names of embeddings of something else than tokens."""
_NOT_TOKENS = frozenset(("img", "image", "images", "video", "videos", "pixel", "pixels", "audio", "wav", "spec"))
"""Words in the name of an input that no model of language takes."""
_KERNELS = frozenset(("jit", "autotune", "heuristics"))
"""Decorators of kernels in Triton, which are called by functions of tensors."""
_ATTENTION = (("q", "k", "v"), ("query", "key", "value"), ("queries", "keys", "values"))

Kind = Literal["model", "attention", "optimizer", "ddp"]


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
    is_likely: bool = True
    """Whether it looks like a whole: a model with embedding and head, not a part of one."""
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


def discover(code: Code) -> Discovery:
    """Return the models, attention functions, optimizers and wrappers that the folder defines."""
    files = [*python_files(code)]
    trees = {file: tree for file in files[:MAX_FILES] if (tree := parse(file)) is not None}
    classes = classes_of(trees)
    found = [
        *_models(classes, code),
        *_without_tokens(classes, code),
        *_pretrained(trees, code),
        *_attention(trees, classes, code),
        *_others(classes, code),
    ]
    return Discovery(
        files=len(trees),
        unread=max(0, len(files) - MAX_FILES),
        candidates=tuple(one for one in found if isinstance(one, Candidate)),
        left_out=tuple(one for one in found if isinstance(one, LeftOut)),
    )


def _models(classes: list[Class], code: Code) -> list[Candidate | LeftOut]:
    """Modules with an embedding, their own or a part's, and those whose forward requires what lmsweep does not give;
    the likeliest first.
    """
    modules = {one.node.name: one for one in classes if one.bases & _MODULES}
    calls = {name: one.calls() for name, one in modules.items()}

    def embeds(name: str, seen: frozenset[str] = frozenset()) -> bool:
        parts = (calls[name] & modules.keys()) - seen - {name}
        return _embeds_tokens(calls[name]) or any(embeds(part, seen | {name, part}) for part in parts)

    ranked: list[tuple[float, str, Candidate | LeftOut]] = []
    for name, one in modules.items():
        forward = one.methods.get("forward")
        if forward is None or "finish_gradient_synchronization" in one.methods or not embeds(name):
            continue
        if _other_input(one):
            continue
        is_part = any(name in calls[other] for other in modules if other != name)
        reference, place = reference_to(one.file, name, code), place_of(one.file, one.node, code)
        taken = parameters_of(forward)
        if unknown := _not_given(taken):
            if not is_part and any(parameter.required for parameter in taken):
                advice = (
                    f"its forward also requires {', '.join(unknown)}: write a function that returns a module around "
                    f"it, whose forward(tokens) gives {unknown[0]}, and name the function"
                )
                ranked.append((0.0, reference, LeftOut(kind="model", reference=reference, place=place, advice=advice)))
            continue
        attributes = {node.attr.lower() for node in ast.walk(one.node) if isinstance(node, ast.Attribute)}
        embeds_itself = _embeds_tokens(calls[name])
        score = 2.0 * embeds_itself
        named = [attribute for attribute in attributes if not attribute.endswith(_OF_ATTENTION)]
        score += 2.0 * any(head in attribute for attribute in named for head in _HEADS)
        score += 1.0 * any(word in name.lower() for word in _NAMES)
        score -= 4.0 * is_part
        parameters = tuple(parameters_of(one.methods["__init__"])) if "__init__" in one.methods else ()
        candidate = Candidate(
            kind="model",
            reference=reference,
            place=place,
            parameters=parameters,
            is_likely=score > 2 or (score > 0 and embeds_itself),
            settings=_settings(parameters, one, classes, code),
        )
        ranked.append((-score, reference, candidate))
    return [candidate for *_, candidate in sorted(ranked, key=lambda row: row[:2])]


def _embeds_tokens(calls: set[str]) -> bool:
    """Whether one of the names that a module calls is that of an embedding: PyTorch's, or the user's MyEmbedding."""
    names = [name.lower() for name in calls if name.endswith("Embedding")]
    return any(not any(word in name for word in _OTHER_EMBEDDINGS) for name in names)


def _without_tokens(classes: list[Class], code: Code) -> Iterator[LeftOut]:
    """Yield the first of the modules that take images or sound, and are no part of another: it needs a step."""
    modules = [one for one in classes if one.bases & _MODULES]
    called = {name for one in modules for name in one.calls() - {one.node.name}}
    wholes = [one for one in modules if _other_input(one) and one.node.name not in called]
    named = [(reference_to(one.file, one.node.name, code), one) for one in wholes]
    for reference, one in sorted(named, key=lambda pair: (len(pair[0]), pair[0]))[:1]:
        advice = (
            f"its forward takes {_other_input(one)}, not tokens: write def make(batch_size): return an object with "
            "forward(), backward() and optimize(), and in place of model: step: ./FILE.py:make"
        )
        others = len(named) - 1
        more = f" (so {'do' if others > 1 else 'does'} {others} other{'s' * (others > 1)})" if others else ""
        place = place_of(one.file, one.node, code)
        yield LeftOut(kind="model", reference=reference, place=place, advice=f"{advice}{more}")


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
                place = f"{file.relative_to(code.folder)}:{node.lineno}"
                yield LeftOut(kind="model", reference=f"{model}.from_pretrained", place=place, advice=advice)
                return


def _other_input(module: Class) -> str | None:
    """Return the first input of a module's forward if its name says that it is no tokens."""
    taken = parameters_of(module.methods["forward"]) if "forward" in module.methods else []
    return taken[0].name if taken and _NOT_TOKENS & {*taken[0].name.lower().split("_")} else None


def _not_given(taken: list[Parameter]) -> list[str]:
    """Return the parameters that a forward requires and is not given; the first is the tokens."""
    tokens = next((one.name for one in taken if one.name in TOKENS), taken[0].name if taken else None)
    given = {tokens, *TARGETS, *MASKS, *POSITIONS}
    return [one.name for one in taken if one.required and one.name not in given]


def _settings(parameters: tuple[Parameter, ...], model: Class, classes: list[Class], code: Code) -> Settings | None:
    """Return the class of the settings that a model needs, if that is all it needs."""
    needed = [one for one in parameters if one.required] or list(parameters)
    if len(needed) != 1 or needed[0].name not in ("config", "cfg", "args", "params", "hparams", "model_args"):
        return None
    wanted = needed[0].annotation.rpartition(".")[2].strip("'\"")
    near = [one for one in classes if one.file == model.file and one.node.name.endswith(("Config", "Args"))]
    named = [one for one in classes if one.node.name == wanted] or ([] if wanted else near)
    if not named:
        return None
    imported = _imported_from(model.file).get(wanted, "")
    found = min(named, key=lambda one: (one.file != model.file, reference_to(one.file, "", code) != f"{imported}:"))
    if any(reference_to(one.file, one.node.name, code).startswith("./") for one in (model, found)):
        return None  # a file that no import statement can name
    is_dataclass = any(
        last_name(one.func if isinstance(one, ast.Call) else one) == "dataclass" for one in found.node.decorator_list
    )
    if is_dataclass or "BaseModel" in found.bases:  # of pydantic
        fields = [one for one in found.node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
        given = tuple(
            Parameter(name=ast.unparse(one.target), required=one.value is None, annotation=ast.unparse(one.annotation))
            for one in fields
        )
    elif "__init__" in found.methods:
        given = (*parameters_of(found.methods["__init__"]), *_taken_from_kwargs(found.methods["__init__"]))
    else:
        return None
    return Settings(reference=reference_to(found.file, found.node.name, code), parameters=given)


def _taken_from_kwargs(function: ast.FunctionDef) -> Iterator[Parameter]:
    """Yield the names that a function looks up in its **kwargs, as configurations for transformers do."""
    kwargs = function.args.kwarg
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
            key, place = node.args[0], node.func.value
            is_lookup = kwargs and isinstance(place, ast.Name) and place.id == kwargs.arg
            if is_lookup and node.func.attr in ("get", "pop") and isinstance(key, ast.Constant):
                yield Parameter(name=str(key.value), required=False)


def _imported_from(file: Path) -> dict[str, str]:
    """Return the names that a file imports from modules that it names in full, each with its module."""
    tree = parse(file)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)] if tree else []
    return {one.name: node.module for node in nodes if node.module and not node.level for one in node.names}


def _attention(trees: dict[Path, ast.Module], classes: list[Class], code: Code) -> Iterator[Candidate | LeftOut]:
    """Functions, autograd.Functions and modules whose first parameters are queries, keys and values."""
    functions = [
        (node.name, node, node, file)
        for file, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not {last_name(one) for one in node.decorator_list} & _KERNELS
    ]
    of_classes = [
        (one.node.name, one.node, one.methods["forward"], one.file)
        for one in classes
        if one.bases & {"Function", "Module"} and "forward" in one.methods
    ]
    modules = {one.node for one in classes if "Module" in one.bases}
    for name, node, function, file in (*of_classes, *functions):
        taken = parameters_of(function, skip=isinstance(node, ast.ClassDef))
        first = tuple(one.name.lower() for one in taken[:3])
        if name.startswith("_") or first not in _ATTENTION:
            continue
        others = tuple(taken[3:])
        reference, place = reference_to(file, name, code), place_of(file, node, code)
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


def _others(classes: list[Class], code: Code) -> Iterator[Candidate | LeftOut]:
    """Optimizers and data-parallel wrappers."""
    for one in classes:
        kind: Kind
        if "Optimizer" in one.bases and "step" in one.methods:
            kind = "optimizer"
        elif "finish_gradient_synchronization" in one.methods:
            kind = "ddp"
        else:
            continue
        taken = parameters_of(one.methods["__init__"]) if "__init__" in one.methods else []
        name = one.node.name
        reference, place = reference_to(one.file, name, code), place_of(one.file, one.node, code)
        if taken and taken[0].name == "param_groups":
            advice = (
                f"it takes groups that its training loop makes: write def make(params): return {name}(...), name make"
            )
            yield LeftOut(kind=kind, reference=reference, place=place, advice=advice)
            continue
        yield Candidate(kind=kind, reference=reference, place=place, parameters=tuple(taken[1:]))
