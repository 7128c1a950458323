"""Which models transformers can build, read from its tables without importing it."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class ModelTypes(NamedTuple):
    """Values of `model_type` that the installed transformers knows."""

    known: frozenset[str]
    causal: frozenset[str]
    """Of causal language models."""
    any: frozenset[str]
    """Of models without a head."""


def why_not_built(described: Mapping[str, object]) -> str | None:
    """Return why transformers has no causal language model of a configuration; None if it has, or if that is unknown.
    Code that a configuration names does not count."""
    types = model_types()
    if types is None:
        return None
    stated = described.get("model_type")
    if not isinstance(stated, str):
        return "it states no model_type"
    if stated not in types.known:
        words = f"transformers {version('transformers')} knows no model_type {stated}"
        if described.get("auto_map"):
            return f"it needs code of its own (auto_map), which lmsweep never runs; {words}"
        return f"{words}; pip install --upgrade transformers"
    parts = [one.get("model_type") for one in described.values() if isinstance(one, dict)]
    inside = {one for one in parts if isinstance(one, str)}
    if stated in types.causal or inside & (types.causal | types.any) or "text_config" in described:
        return None
    return f"transformers {version('transformers')} has no causal language model of the model_type {stated}"


@cache
def model_types() -> ModelTypes | None:
    """Return what the installed transformers knows; None if it is not installed, or if its tables are not found."""
    spec = find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)), "models", "auto")
    files = [folder / name for name in ("auto_mappings.py", "configuration_auto.py")]
    configs = "".join(one.read_text() for one in files if one.is_file())
    modeling = folder / "modeling_auto.py"
    models = modeling.read_text() if modeling.is_file() else ""
    found = ModelTypes(
        frozenset(re.findall(r'"([\w.-]+)"[,:]\s*"\w+Config"', configs)),
        _keys(models, "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"),
        _keys(models, "MODEL_MAPPING_NAMES"),
    )
    return found if all(found) else None


def _keys(text: str, table: str) -> frozenset[str]:
    found = re.search(rf"^{table} = OrderedDict\(\n(.*?)^\)", text, re.DOTALL | re.MULTILINE)
    return frozenset(re.findall(r'^\s+\("([\w.-]+)"', found[1], re.MULTILINE)) if found else frozenset()
