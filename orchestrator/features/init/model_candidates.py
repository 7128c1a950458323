"""Finds the classes of a folder that are probably models, with the likeliest first."""

import ast
import re
from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from lmsweep.orchestrator.features.init.definitions import Candidate, Class, LeftOut, Parameter, is_archived, last_name
from lmsweep.orchestrator.features.init.model_settings import ways_to_build
from lmsweep.trials.spec.reference import FINISH, MASKS, POSITIONS, TARGETS, TOKENS, Code

_HEADS = ("head", "unembed", "output", "to_logits")
"""Words in the name of an attribute that makes logits."""
_OF_ATTENTION = ("heads", "d_head", "dim_head", "head_dim", "head_size")
"""Endings of attributes that are about attention heads."""
_NAMES = ("lm", "gpt", "llama", "transformer", "model")
"""Words in the name of a class that is called a model."""
_MODULES = frozenset(("Module", "PreTrainedModel"))
"""Classes of PyTorch and transformers that a model derives from."""
_OTHER_EMBEDDINGS = ("rotary", "rope", "position", "sinus", "patch", "time")
"""Words in the names of embeddings of something else than tokens."""
_NOT_TOKENS = frozenset(("img", "image", "images", "video", "videos", "pixel", "pixels", "audio", "wav", "spec"))
"""Words in the name of an input that no language model takes."""
_SCRIPTS = ("train", "bench", "eval", "generate", "sample", "demo", "example")
"""Beginnings of the names of files whose models are less likely the ones of a package."""
_EMBEDDING = re.compile(r"(?i:embeddings?|embedder)$|(^|_)(?i:emb)(_|$)")
"""Names of a class that embeds tokens and is no model: `MyEmbeddings`, `embedder`, `tok_emb`."""


def models(classes: list[Class], code: Code) -> list[Candidate | LeftOut]:
    """Return the modules that embed tokens, themselves or in a part. One whose forward requires arguments that lmsweep
    does not give is a LeftOut.

    Of equal classes the first counts, and copies in an archive only where there is nothing else.
    """
    modules = [one for one in classes if one.bases & _MODULES]
    named: dict[str, list[Class]] = {}
    for one in modules:
        named.setdefault(one.name, []).append(one)
    ranked: list[_Ranked] = []
    seen: set[str] = set()
    for cls in modules:
        if not _is_model(cls, named) or (text := ast.dump(cls.node)) in seen:
            continue
        seen.add(text)
        is_part = any(cls.name in other.calls for other in modules if other.name != cls.name)
        unknown = _not_given(cls.parameters_of("forward"))
        if unknown and is_part:
            continue
        score, found = (0.0, _left_out(cls, unknown)) if unknown else _judged(cls, classes, is_part=is_part)
        # Prefer what an import can name, then what is not in a script, then what is higher in the folder.
        near = (cls.reference.startswith("./"), cls.file.name.startswith(_SCRIPTS), len(cls.file.parts))
        ranked.append(_Ranked(is_archived(cls.file, code), -score, near, cls.reference, found))
    in_use = [one for one in ranked if not one.is_old]
    # Without the last field, as candidates cannot be compared.
    likeliest = [one.found for one in sorted(in_use or ranked, key=lambda one: one[:-1])]
    return likeliest or [*_without_forward(modules, named.keys())]


class _Ranked(NamedTuple):
    """What was found, by how likely it is: the smaller the fields, the likelier."""

    is_old: bool
    minus_score: float
    near: tuple[bool, bool, int]
    reference: str
    found: Candidate | LeftOut


def _is_model(cls: Class, named: Mapping[str, list[Class]]) -> bool:
    """Whether a module has a forward, takes no other input than tokens and embeds them, also in a part. named: modules
    of the folder by their name."""
    is_wrapper = FINISH in cls.methods  # FINISH waits for the ranks' gradients, as only a wrapper does
    is_embedding = any(_EMBEDDING.search(each) for each in (cls.name, *(cls.bases & named.keys())))
    has_forward = "forward" in cls.methods and not is_wrapper and not is_embedding
    return has_forward and not _other_input(cls) and _embeds(cls, named)


def _embeds(module: Class, named: Mapping[str, list[Class]], seen: frozenset[str] = frozenset()) -> bool:
    """Whether the module or a part of it embeds tokens. seen: modules that it is a part of. Of several modules with the
    name of a part, the one in the same file is meant."""
    if _embeds_tokens(module.calls):
        return True
    seen = seen | {module.name}
    parts = [named[name] for name in sorted((module.calls & named.keys()) - seen)]
    return any(_embeds(min(part, key=lambda one: one.file != module.file), named, seen) for part in parts)


def _left_out(cls: Class, unknown: list[str]) -> LeftOut:
    """Return what to do about a forward that requires what lmsweep does not give."""
    advice = (
        f"its forward also requires {', '.join(unknown)}: write a function that returns a module around "
        f"it, whose forward(tokens) gives {unknown[0]}, and name the function"
    )
    return LeftOut(kind="model", reference=cls.reference, place=cls.place, advice=advice, is_likely=True)


def _judged(cls: Class, classes: list[Class], *, is_part: bool) -> tuple[float, Candidate]:
    """Return how likely the class is a model, and the candidate. is_part: whether another class has it as a part."""
    attributes = {node.attr.lower() for node in ast.walk(cls.node) if isinstance(node, ast.Attribute)}
    of_model = [attribute for attribute in attributes if not attribute.endswith(_OF_ATTENTION)]
    embeds = _embeds_tokens(cls.calls)
    has_head = any(head in attribute for attribute in of_model for head in _HEADS)
    is_called_model = any(word in cls.name.lower() for word in _NAMES)
    looks_whole = has_head and is_called_model
    candidate = Candidate(
        kind="model",
        reference=cls.reference,
        place=cls.place,
        parameters=cls.parameters,
        is_likely=(embeds and looks_whole) if is_part else (embeds or looks_whole),
        ways=ways_to_build(cls, classes),
    )
    return 2.0 * embeds + 2.0 * has_head + 1.0 * is_called_model - 4.0 * is_part, candidate


def _without_forward(modules: list[Class], ours: Set[str]) -> Iterator[LeftOut]:
    """Yield the modules that are called models and get their forward from a class outside of the folder."""
    for module in modules:
        bases = [last_name(base) for base in module.node.bases]
        outside = [name for name in bases if name not in {*ours, *_MODULES}]
        if "forward" not in module.methods and outside and any(word in module.name.lower() for word in _NAMES):
            advice = (
                f"its forward is that of {outside[0]}: write a function that returns a module around it, whose "
                "forward(tokens) returns logits, and name the function"
            )
            yield LeftOut(kind="model", reference=module.reference, place=module.place, advice=advice, is_likely=True)


def models_without_tokens(classes: list[Class]) -> Iterator[LeftOut]:
    """Yield the first of the modules that take images or sound, and are no part of another. Such a model can be
    measured only as a training step that the user writes."""
    modules = [one for one in classes if one.bases & _MODULES]
    called = {name for one in modules for name in one.calls - {one.name}}
    wholes = [one for one in modules if _other_input(one) and one.name not in called]
    if not wholes:
        return
    # None is likelier than another here: name the one with the shortest reference, and count the others.
    first = min(wholes, key=lambda one: (len(one.reference), one.reference))
    others = len(wholes) - 1
    more = f" (so {'do' if others > 1 else 'does'} {others} other{'s' * (others > 1)})" if others else ""
    advice = (
        f"its forward takes {_other_input(first)}, not tokens{more}: write def make(batch_size): return an object with "
        "forward(), backward() and optimize(), and in place of model: step: ./FILE.py:make"
    )
    yield LeftOut(kind="model", reference=first.reference, place=first.place, advice=advice)


def _embeds_tokens(calls: Set[str]) -> bool:
    """Whether one of the names that a module calls is that of an embedding: PyTorch's, or the user's MyEmbedding."""
    names = [name.lower() for name in calls if name.endswith("Embedding")]
    return any(not any(word in name for word in _OTHER_EMBEDDINGS) for name in names)


def _other_input(module: Class) -> str | None:
    taken = module.parameters_of("forward")
    return taken[0].name if taken and _NOT_TOKENS & {*taken[0].name.lower().split("_")} else None


def _not_given(taken: tuple[Parameter, ...]) -> list[str]:
    """Return what a forward requires and lmsweep does not give. Without a usual name, the first is the tokens."""
    tokens = next((one.name for one in taken if one.name in TOKENS), taken[0].name if taken else None)
    given = {tokens, *TARGETS, *MASKS, *POSITIONS}
    return [one.name for one in taken if one.required and one.name not in given]
