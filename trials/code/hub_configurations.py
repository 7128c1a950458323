"""Hugging Face configurations: those of well-known models ship, so that `hf:Qwen/Qwen3-8B` needs neither network nor
cache. Which of them transformers can build is read from its tables, without importing it.

To add one, add `OWNER--NAME.json` to `configurations`, unchanged, and its source to `configurations/SOURCES.md`.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.installing import install_command

FOLDER = Path(__file__).parent / "configurations"


def shipped_configuration(name: str) -> Path | None:
    """Return the file of a name on the hub, such as `Qwen/Qwen3-8B`; None if none ships."""
    renamed = name.replace("/Meta-Llama-", "/Llama-")  # the hub has them under both names
    path = FOLDER / f"{renamed.replace('/', '--')}.json"
    return path if "/" in name and path.is_file() else None


NAMES: dict[str, tuple[str, ...]] = {
    "vocab_size": ("vocab_size",),
    "d_model": ("hidden_size", "n_embd", "d_model", "dim"),
    "d_ff": ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
}
"""Field -> the usual names of it in a Hugging Face configuration."""

MOST_BYTES = 10_000_000
"""Maximum size of a configuration. Those on the hub take up to a few hundred kB."""
LARGEST_VALUES = {**dict.fromkeys(NAMES["num_layers"], 10_000), "num_labels": 1_000_000}
"""Key -> its largest value. With more, reading or building its model on the meta device takes hours or all memory."""
LARGEST_OTHER_VALUE = 2**31  # of any other count; those of models are far smaller


def read_configuration(path: Path, override: Mapping[str, object]) -> dict[str, Any]:
    """Return the stated fields of a configuration's text model, overridden. Raises RequestError if it is malformed."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise ValueError(f"it has {size} bytes, more than {MOST_BYTES}")
        whole = json.loads(path.read_text("utf-8"))
        described = (whole.get("text_config") or whole) if isinstance(whole, dict) else whole
        if not isinstance(described, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise RequestError(f"hf:{path} is not a Hugging Face configuration: {error}") from error
    if why := why_not_built(whole):
        raise RequestError(f"hf:{path}: {why}")
    described = described | dict(override)
    for name, value in chain(whole.items(), described.items()):
        is_count = name in chain(*NAMES.values()) or name.startswith(("num_", "n_"))
        if is_count and isinstance(value, int) and value > (most := LARGEST_VALUES.get(name, LARGEST_OTHER_VALUE)):
            raise RequestError(f"hf:{path}: {name} is more than {most}, which no model has")
    return described


class ModelTypes(NamedTuple):
    """Values of `model_type` that the installed transformers knows."""

    known: frozenset[str]
    causal: frozenset[str]
    """Model types with a causal language model."""
    headless: frozenset[str]
    """Model types that have a model without a head."""


def why_not_built(described: Mapping[str, object]) -> str | None:
    """Return why transformers cannot build a causal language model of a configuration; None if it can, or if that is
    unknown. Code that the configuration brings along is never run, and so does not count."""
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
        return f"{words}; {install_command('--upgrade', 'transformers')}"
    parts = [one.get("model_type") for one in described.values() if isinstance(one, dict)]
    inside = {one for one in parts if isinstance(one, str)}  # a model of text and images has its language model inside
    if stated in types.causal or inside & (types.causal | types.headless) or "text_config" in described:
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
