"""Finds the classes of a folder that are probably models, with the likeliest first."""

import ast
import re
from collections.abc import Iterator, Set

from lmsweep.orchestrator.features.init.definitions import Candidate, Class, LeftOut, Parameter, is_archived, last_name
from lmsweep.orchestrator.features.init.model_settings import ways_to_build
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
_SCRIPTS = ("train", "bench", "eval", "generate", "sample", "demo", "example")
"""Beginnings of the names of files whose models are less likely the ones of a package."""
_EMBEDDING = re.compile(r"(?i:embeddings?|embedder)$|(^|_)(?i:emb)(_|$)")
"""Names of a class that embeds tokens and is no model."""


def models(classes: list[Class], code: Code) -> list[Candidate | LeftOut]:
    """Return the modules that embed tokens, also in a part; those whose forward requires more are left out.

    Of equal classes the first counts, and copies in an archive only where there is nothing else.
    """
    modules = [one for one in classes if one.bases & _MODULES]
    named: dict[str, list[Class]] = {}
    for one in modules:
        named.setdefault(one.name, []).append(one)

    def embeds(module: Class, seen: frozenset[str] = frozenset()) -> bool:
        called = module.calls
        parts = (called & named.keys()) - seen - {module.name}
        chosen = [min(named[part], key=lambda one: one.file != module.file) for part in sorted(parts)]
        return _embeds_tokens(called) or any(embeds(part, seen | {module.name, part.name}) for part in chosen)

    ranked: list[tuple[tuple[bool, float, bool, bool, int], Candidate | LeftOut]] = []  # smaller is likelier
    copies: set[str] = set()
    for cls in modules:
        is_wrapper = "finish_gradient_synchronization" in cls.methods
        is_embedding = any(_EMBEDDING.search(each) for each in (cls.name, *(cls.bases & named.keys())))
        if "forward" not in cls.methods or is_wrapper or is_embedding or _other_input(cls) or not embeds(cls):
            continue
        if (text := ast.dump(cls.node)) in copies:
            continue
        copies.add(text)
        is_part = any(cls.name in other.calls for other in modules if other.name != cls.name)
        taken, is_old = cls.parameters_of("forward"), is_archived(cls.file, code)
        # What an import can name comes first, then what is no script, then what is higher in the folder.
        near = (cls.reference.startswith("./"), cls.file.name.startswith(_SCRIPTS), len(cls.file.parts))
        if unknown := _not_given(taken):
            if not is_part and any(parameter.required for parameter in taken):
                advice = (
                    f"its forward also requires {', '.join(unknown)}: write a function that returns a module around "
                    f"it, whose forward(tokens) gives {unknown[0]}, and name the function"
                )
                left = LeftOut(kind="model", reference=cls.reference, place=cls.place, advice=advice, is_likely=True)
                ranked.append(((is_old, 0.0, *near), left))
            continue
        attributes = {node.attr.lower() for node in ast.walk(cls.node) if isinstance(node, ast.Attribute)}
        of_model = [attribute for attribute in attributes if not attribute.endswith(_OF_ATTENTION)]
        embeds_itself = _embeds_tokens(cls.calls)
        score = 2.0 * embeds_itself + 2.0 * any(head in attribute for attribute in of_model for head in _HEADS)
        score += 1.0 * any(word in cls.name.lower() for word in _NAMES) - 4.0 * is_part
        candidate = Candidate(
            kind="model",
            reference=cls.reference,
            place=cls.place,
            parameters=cls.parameters,
            is_likely=score > 2 or (score > 0 and embeds_itself),
            ways=ways_to_build(cls, classes, code),
        )
        ranked.append(((is_old, -score, *near), candidate))
    in_use = [row for row in ranked if not row[0][0]]
    candidates = [one for _, one in sorted(in_use or ranked, key=lambda row: (row[0], row[1].reference))]
    return candidates or [*_without_forward(modules, named.keys())]


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


def without_tokens(classes: list[Class]) -> Iterator[LeftOut]:
    """Yield the first of the modules that take images or sound, and are no part of another: it needs a step."""
    modules = [one for one in classes if one.bases & _MODULES]
    called = {name for one in modules for name in one.calls - {one.name}}
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
