"""The dimensions of a Hugging Face configuration, read from its JSON without importing or running anything."""

import json
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmsweep.trials.code.calling import arguments_of
from lmsweep.trials.code.hub_configurations import shipped_configuration
from lmsweep.trials.spec.config import RequestError, TrialConfig
from lmsweep.trials.spec.reference import HUGGING_FACE, Code

NAMES: dict[str, tuple[str, ...]] = {
    "vocab_size": ("vocab_size",),
    "d_model": ("hidden_size", "n_embd", "d_model", "dim"),
    "d_ff": ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
}
"""Field -> the usual names of it in a Hugging Face configuration."""


def with_dimensions(config: TrialConfig, code: Code) -> TrialConfig:
    """Return the configuration with the dimensions that its Hugging Face configuration states.

    Unknown dimensions of a model are 0 or None: its trial knows them. Warns if the configuration is not on this
    machine. Raises RequestError if there is no such file or it is not JSON.
    """
    name = str(config.model_code).removeprefix(HUGGING_FACE)
    path = _json_of(name, code)
    if path is None:
        warnings.warn(
            f"hf:{name}: its config.json is not in the hub's cache here, so its dimensions are unknown, and null "
            "in the results. Once it is there, its trials have other identifiers and are measured again; fetch it: "
            f"hf download {name} config.json",
            stacklevel=2,
        )
        return replace(config, vocab_size=0)
    try:
        described: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RequestError(f"{path}: it is not a Hugging Face configuration in JSON: {error}") from error
    described = (described.get("text_config") or described) | arguments_of(config.model_args)
    values: dict[str, Any] = {"vocab_size": 0}
    for field, names in NAMES.items():
        stated = [described[name] for name in names if isinstance(described.get(name), int)]
        if stated and stated[0] > 0:
            values[field] = stated[0]
    return replace(config, **values)


def _json_of(name: str, code: Code) -> Path | None:
    """In the code folder, else in the hub's cache, else among those that ship."""
    path = Path(code.folder, name)
    for file in (path / "config.json", path):
        if file.is_file():
            return file
    if name.startswith((".", "/")) or name.endswith(".json"):
        raise RequestError(f"hf:{name}: there is no file {path}")
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
    kept = hub / f"models--{name.replace('/', '--')}"
    revision = kept / "refs" / "main"
    if revision.is_file():
        file = kept / "snapshots" / revision.read_text().strip() / "config.json"
        if file.is_file():
            return file
    return shipped_configuration(name)
