"""A model from a Hugging Face configuration: random weights, no code but that of the installed transformers."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from lmsweep.trials.code.hub_configurations import shipped_configuration
from lmsweep.trials.code.importing import code_in_use
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import HUGGING_FACE
from lmsweep.trials.spec.ways.attentions import ATTENTIONS

if TYPE_CHECKING:
    from transformers import PretrainedConfig

NETWORK_SECONDS = 10.0
"""How long the hub may take to answer."""


def from_hugging_face(config: TrialConfig, changes: dict[str, object], *, dtype: torch.dtype) -> nn.Module:
    """Build the causal language model of a configuration, with `changes` to it, and random weights. The configuration
    is a file, a folder with config.json, or a name on the hub. Code that it names is never run. Raises UnsupportedError
    if transformers is not installed, RequestError if there is no such configuration or field."""
    if find_spec("transformers") is None:
        raise UnsupportedError("hf: needs the package transformers; pip install 'lmsweep[hf]'")
    from transformers import AutoModelForCausalLM

    implementation = ATTENTIONS[config.attention].hugging_face if config.attention in ATTENTIONS else None
    if implementation is None:
        raise UnsupportedError(
            f"{config.model_code} has its own attention layers; attention is a reference, {config.attention}"
        )
    described = read_configuration(config, changes)
    described.use_cache = False
    try:
        model: nn.Module = AutoModelForCausalLM.from_config(
            described, attn_implementation=implementation, dtype=dtype, trust_remote_code=False
        )
    except (ValueError, ImportError) as error:
        if "attention" not in str(error):
            raise
        raise UnsupportedError(
            f"{config.model_code}: transformers has no {implementation} attention for the model type "
            f"{described.model_type}; use attention: naive"
        ) from error
    return model


def read_configuration(config: TrialConfig, changes: dict[str, object]) -> "PretrainedConfig":
    """Return the configuration of transformers, with `changes`. Raises RequestError."""
    from transformers import AutoConfig, PretrainedConfig

    name = str(config.model_code).removeprefix(HUGGING_FACE)
    path = Path(code_in_use().folder, name)
    place = str(path) if path.exists() else name
    if not path.exists() and (name.startswith((".", "/")) or name.endswith(".json")):
        raise RequestError(f"hf:{name}: there is no file {path}")
    try:
        if not path.exists():
            place = _found_on_hub(name)
        found = AutoConfig.from_pretrained(place, trust_remote_code=False, local_files_only=True)
        stated, _ = PretrainedConfig.get_config_dict(place, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise RequestError(f"hf:{name}: {str(error).strip().splitlines()[0]}") from error
    if getattr(found, "auto_map", None):
        raise RequestError(f"hf:{name}: it needs code of its own (auto_map), which lmsweep never runs")
    for one in changes:
        if one.startswith("_") or one in ("auto_map", "attn_implementation") or not hasattr(found, one):
            raise RequestError(f"{config.model_code}: its configuration has no {one} to override")
    if "num_hidden_layers" in changes and "layer_types" not in changes:
        stated.pop("layer_types", None)  # one for each layer of the original
    # Constructed again, because transformers derives some fields from others.
    return type(found).from_dict(stated | changes) if changes else found


def _found_on_hub(name: str) -> str:
    """Return the name of a configuration in the hub's cache, else the path of one that ships. Any other is downloaded
    into the cache, in one attempt."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    file = (name, "config.json")
    fetch = f"fetch it where there is a network: hf download {name} config.json"
    try:
        hf_hub_download(*file, local_files_only=True)
        return name
    except LocalEntryNotFoundError:
        if shipped := shipped_configuration(name):
            return str(shipped)
    url = hf_hub_url(*file)
    try:
        get_hf_file_metadata(url, timeout=NETWORK_SECONDS)  # hf_hub_download itself would try for 35 s
        hf_hub_download(*file)
        return name
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "an error"
        raise RequestError(
            f"{url} answers {status}; check the name at https://huggingface.co/models, and where the model "
            "is gated, log in: hf auth login"
        ) from error
    except OfflineModeIsEnabled as error:
        raise RequestError(f"its config.json is not in the hub's cache, and HF_HUB_OFFLINE is set; {fetch}") from error
    except Exception as error:  # of whichever HTTP client this version of huggingface_hub uses
        raise RequestError(
            f"its config.json is not in the hub's cache, and the hub cannot be reached; {fetch}"
        ) from error
