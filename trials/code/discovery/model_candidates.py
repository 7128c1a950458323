"""Finds the classes of a folder that are probably models, with the likeliest first."""

import ast
from collections.abc import Iterator
from pathlib import Path

from lmsweep.trials.code.discovery.definitions import (
    Candidate,
    Class,
    LeftOut,
    Parameter,
    Settings,
    last_name,
    reference_to,
)
from lmsweep.trials.code.project import text_of
from lmsweep.trials.code.source import parse
from lmsweep.trials.spec.reference import MASKS, POSITIONS, TARGETS, TOKENS, Code

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
_SETTINGS = ("config", "cfg", "args", "params", "hparams", "model_args")
"""Names of a parameter that takes an object with settings."""


def models(classes: list[Class], code: Code) -> list[Candidate | LeftOut]:
    """Return the modules that embed tokens, also in a part; those whose forward requires more are left out."""
    modules = {one.name: one for one in classes if one.bases & _MODULES}
    calls = {name: one.calls() for name, one in modules.items()}

    def embeds(name: str, seen: frozenset[str] = frozenset()) -> bool:
        parts = (calls[name] & modules.keys()) - seen - {name}
        return _embeds_tokens(calls[name]) or any(embeds(part, seen | {name, part}) for part in parts)

    ranked: list[tuple[float, Candidate | LeftOut]] = []
    for name, one in modules.items():
        is_wrapper = "finish_gradient_synchronization" in one.methods
        if "forward" not in one.methods or is_wrapper or _other_input(one) or not embeds(name):
            continue
        is_part = any(name in calls[other] for other in modules if other != name)
        taken = one.parameters_of("forward")
        if unknown := _not_given(taken):
            if not is_part and any(parameter.required for parameter in taken):
                advice = (
                    f"its forward also requires {', '.join(unknown)}: write a function that returns a module around "
                    f"it, whose forward(tokens) gives {unknown[0]}, and name the function"
                )
                ranked.append((0.0, LeftOut(kind="model", reference=one.reference, place=one.place, advice=advice)))
            continue
        attributes = {node.attr.lower() for node in ast.walk(one.node) if isinstance(node, ast.Attribute)}
        named = [attribute for attribute in attributes if not attribute.endswith(_OF_ATTENTION)]
        embeds_itself = _embeds_tokens(calls[name])
        score = 2.0 * embeds_itself + 2.0 * any(head in attribute for attribute in named for head in _HEADS)
        score += 1.0 * any(word in name.lower() for word in _NAMES) - 4.0 * is_part
        candidate = Candidate(
            kind="model",
            reference=one.reference,
            place=one.place,
            parameters=one.parameters,
            is_likely=score > 2 or (score > 0 and embeds_itself),
            settings=_settings(one, classes, code),
        )
        ranked.append((-score, candidate))
    return [found for _, found in sorted(ranked, key=lambda row: (row[0], row[1].reference))]


def without_tokens(classes: list[Class]) -> Iterator[LeftOut]:
    """Yield the first of the modules that take images or sound, and are no part of another: it needs a step."""
    modules = [one for one in classes if one.bases & _MODULES]
    called = {name for one in modules for name in one.calls() - {one.name}}
    wholes = [one for one in modules if _other_input(one) and one.name not in called]
    if not wholes:
        return
    first = min(wholes, key=lambda one: (len(one.reference), one.reference))
    advice = (
        f"its forward takes {_other_input(first)}, not tokens: write def make(batch_size): return an object with "
        "forward(), backward() and optimize(), and in place of model: step: ./FILE.py:make"
    )
    others = len(wholes) - 1
    more = f" (so {'do' if others > 1 else 'does'} {others} other{'s' * (others > 1)})" if others else ""
    yield LeftOut(kind="model", reference=first.reference, place=first.place, advice=f"{advice}{more}")


def _embeds_tokens(calls: set[str]) -> bool:
    """Whether one of the names that a module calls is that of an embedding: PyTorch's, or the user's MyEmbedding."""
    names = [name.lower() for name in calls if name.endswith("Embedding")]
    return any(not any(word in name for word in _OTHER_EMBEDDINGS) for name in names)


def _other_input(module: Class) -> str | None:
    taken = module.parameters_of("forward")
    return taken[0].name if taken and _NOT_TOKENS & {*taken[0].name.lower().split("_")} else None


def _not_given(taken: tuple[Parameter, ...]) -> list[str]:
    """The first is the tokens."""
    tokens = next((one.name for one in taken if one.name in TOKENS), taken[0].name if taken else None)
    given = {tokens, *TARGETS, *MASKS, *POSITIONS}
    return [one.name for one in taken if one.required and one.name not in given]


def _settings(model: Class, classes: list[Class], code: Code) -> Settings | None:
    needed = [one for one in model.parameters if one.required] or list(model.parameters)
    if len(needed) != 1 or needed[0].name not in _SETTINGS:
        return None
    wanted = needed[0].annotation.rpartition(".")[2].strip("'\"")
    near = [one for one in classes if one.file == model.file and one.name.endswith(("Config", "Args"))]
    named = [one for one in classes if one.name == wanted] or ([] if wanted else near)
    if not named:
        return None
    imported = _imported_from(model.file).get(wanted, "")
    found = min(named, key=lambda one: (one.file != model.file, reference_to(one.file, "", code) != f"{imported}:"))
    if any(one.reference.startswith("./") for one in (model, found)):
        return None  # a file that no import statement can name
    if "BaseModel" in found.bases or any(last_name(one) == "dataclass" for one in found.node.decorator_list):
        fields = [one for one in found.node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
        given = tuple(
            Parameter(name=text_of(one.target), required=one.value is None, annotation=text_of(one.annotation))
            for one in fields
        )
    elif "__init__" in found.methods:
        given = (*found.parameters, *_taken_from_kwargs(found.methods["__init__"]))
    else:
        return None
    return Settings(reference=found.reference, parameters=given)


def _taken_from_kwargs(function: ast.FunctionDef) -> Iterator[Parameter]:
    """Names that a function looks up in its **kwargs, as configurations for transformers do."""
    kwargs = function.args.kwarg
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
            key, place = node.args[0], node.func.value
            is_lookup = kwargs and isinstance(place, ast.Name) and place.id == kwargs.arg
            if is_lookup and node.func.attr in ("get", "pop") and isinstance(key, ast.Constant):
                yield Parameter(name=str(key.value), required=False)


def _imported_from(file: Path) -> dict[str, str]:
    """By name; only of modules that are named in full."""
    tree = parse(file)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)] if tree else []
    return {one.name: node.module for node in nodes if node.module and not node.level for one in node.names}
