"""Causal language models of Hugging Face's configurations, with random weights, whole or with some of their layers."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from lmsweep.trials.code.calling import arguments_of
from lmsweep.trials.code.hub_configurations import shipped_configuration
from lmsweep.trials.code.importing import code_in_use
from lmsweep.trials.model.users.layer_kinds import Layers, layers_of, only
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.installing import install_extra
from lmsweep.trials.spec.reference import HUGGING_FACE, Code
from lmsweep.trials.spec.ways.attentions import ATTENTIONS

if TYPE_CHECKING:
    from transformers import PretrainedConfig

LAYERS_ARGUMENT = "_layers"
"""An argument that predictions add to a model: the indices of the layers that it is built with."""
NETWORK_SECONDS = 10.0
"""How long the hub may take to answer."""


def from_hugging_face(config: TrialConfig, changes: dict[str, object], *, dtype: torch.dtype) -> nn.Module:
    """Build the causal language model of a configuration, with `changes` to it, and random weights. The configuration
    is a file, a folder with config.json, or a name on the hub. Code that it names is never run. Raises UnsupportedError
    if transformers is not installed, RequestError if there is no such configuration or field."""
    if find_spec("transformers") is None:
        raise UnsupportedError(f"hf: needs the package transformers; {install_extra('hf')}")
    kept = changes.get(LAYERS_ARGUMENT)
    changes = {name: value for name, value in changes.items() if name != LAYERS_ARGUMENT}
    building: AbstractContextManager[Callable[[nn.Module], None]] = nullcontext(lambda model: None)
    if kept is not None:  # `_layers` builds the whole model, without storage, to name its layers
        layers = _layers(code_in_use(), str(config.model_code), json.dumps(changes, sort_keys=True), config.attention)
        assert layers is not None, "a prediction asks for some of the layers that there are"
        building = only(layers, cast(list[int], kept))
    implementation = ATTENTIONS[config.attention].hugging_face if config.attention in ATTENTIONS else None
    if implementation is None:
        raise UnsupportedError(
            f"{config.model_code} has its own attention layers; attention is a reference, {config.attention}"
        )
    described = read_configuration(config, changes)
    described.use_cache = False
    try:
        with building as finish:
            model = _build(described, attn_implementation=implementation, dtype=dtype, trust_remote_code=False)
            finish(model)
    except (ValueError, ImportError) as error:
        if "attention" not in str(error):
            raise
        raise UnsupportedError(
            f"{config.model_code}: transformers has no {implementation} attention for the model type "
            f"{described.model_type}; use attention: naive"
        ) from error
    return model


def layers_of_configuration(config: TrialConfig) -> Layers | None:
    """Return the layers of a configuration's causal language model, which is built without storage; only those that
    `with_layers` kept. Raises as `from_hugging_face` does."""
    changes = arguments_of(config.model_args)
    kept = cast(list[int] | None, changes.pop(LAYERS_ARGUMENT, None))
    found = _layers(code_in_use(), str(config.model_code), json.dumps(changes, sort_keys=True), config.attention)
    return found if found is None or kept is None else replace(found, kinds=tuple(found.kinds[one] for one in kept))


@lru_cache(maxsize=8)
def _layers(code: Code, model_code: str, model_args: str, attention: str) -> Layers | None:
    config = TrialConfig(model_code=model_code, attention=attention)
    with torch.device("meta"):
        return layers_of(from_hugging_face(config, arguments_of(model_args), dtype=torch.bfloat16))


def with_layers(config: TrialConfig, kept: Sequence[int]) -> TrialConfig:
    """Return the configuration of a model of Hugging Face that has only the layers at these places of its own."""
    arguments = arguments_of(config.model_args)
    before = cast(list[int] | None, arguments.get(LAYERS_ARGUMENT))
    arguments[LAYERS_ARGUMENT] = list(kept) if before is None else [before[one] for one in kept]
    return replace(config, num_layers=len(kept), model_args=json.dumps(arguments, sort_keys=True))


def read_configuration(config: TrialConfig, changes: dict[str, object]) -> "PretrainedConfig":
    """Return the transformers configuration of the (text) model, with `changes`. Raises RequestError."""
    found, stated = _read(str(config.model_code).removeprefix(HUGGING_FACE))
    text = _text_of(found)
    if text is None:
        why = f"transformers has no causal language model of the type {found.model_type}"
        raise RequestError(f"{config.model_code}: {why}")
    # Read now: it may be stated outside of the part for text.
    tied = getattr(text, "tie_word_embeddings", getattr(found, "tie_word_embeddings", False))
    if text is not found:  # of a model of images and text, whose configuration states the text's under some key
        keys_of_text = [key for key, value in vars(found).items() if value is text and key in stated]
        stated = stated[keys_of_text[0]] if keys_of_text else {}
    for values in (vars(text), stated):
        values.pop("auto_map", None)  # the code that it names is never run
    for field in changes:
        if field.startswith("_") or field in ("auto_map", "attn_implementation") or not hasattr(text, field):
            raise RequestError(f"{config.model_code}: its configuration has no {field} to override")
    text.tie_word_embeddings = tied
    if not changes:
        return text
    layers = changes.get("num_hidden_layers")
    if layers is not None:
        stated = _with_first_layers(stated, text.num_hidden_layers, cast(int, layers))
    # Constructed again, because transformers derives some fields from others.
    changed = type(text).from_dict(stated | changes)
    changed.tie_word_embeddings = changes.get("tie_word_embeddings", tied)
    if layers is not None and changed.num_hidden_layers != layers:
        raise RequestError(
            f"{config.model_code}: its num_hidden_layers stays {changed.num_hidden_layers}, because it follows from "
            "the list of its layers; override that one"
        )
    return changed


def _read(name: str) -> "tuple[PretrainedConfig, dict[str, Any]]":
    """Return what transformers makes of a file or of a name on the hub, and the fields that are stated there."""
    from transformers import AutoConfig, PretrainedConfig

    path = Path(code_in_use().folder, name)
    if not path.exists() and (name.startswith((".", "/")) or name.endswith(".json")):
        raise RequestError(f"hf:{name}: there is no file {path}")
    try:
        place = str(path) if path.exists() else _found_on_hub(name)
        found = AutoConfig.from_pretrained(place, trust_remote_code=False, local_files_only=True)
        stated, _ = PretrainedConfig.get_config_dict(place, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise RequestError(f"hf:{name}: {str(error).strip().splitlines()[0]}") from error
    return found, stated


def _with_first_layers(stated: dict[str, Any], whole: int, layers: int) -> dict[str, Any]:
    """Return the stated fields for a model of `layers` layers in place of `whole`. Lists with a value for each layer
    are cut to the first ones; for more layers they are dropped, and transformers derives them."""
    per_layer = [name for name, value in stated.items() if isinstance(value, list) and len(value) == whole]
    others = {name: value for name, value in stated.items() if name not in per_layer}
    return others | ({name: stated[name][:layers] for name in per_layer} if layers <= whole else {})


def _text_of(found: "PretrainedConfig") -> "PretrainedConfig | None":
    """Return the configuration whose causal language model is built: this one or its part for text; None if neither
    has one."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING

    text: PretrainedConfig = found.get_text_config()
    for one in (text, found):
        if type(one) in MODEL_FOR_CAUSAL_LM_MAPPING:
            return one
    return text if text is not found and type(text) in MODEL_MAPPING else None


def _build(described: "PretrainedConfig", **options: Any) -> nn.Module:
    from transformers import AutoModel, AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(described) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return cast(nn.Module, AutoModelForCausalLM.from_config(described, **options))
    return TextModel(AutoModel.from_config(described, **options), described, options["dtype"])


class TextModel(nn.Module):
    """The text model of a configuration of images and text, for which transformers has no causal language model."""

    def __init__(self, model: nn.Module, described: "PretrainedConfig", dtype: torch.dtype) -> None:
        super().__init__()
        self.config = described
        self.model = model
        self.lm_head = nn.Linear(described.hidden_size, described.vocab_size, bias=False, dtype=dtype)
        if described.tie_word_embeddings:
            embeddings: Any = model.get_input_embeddings()  # type: ignore[operator]
            self.lm_head.weight = embeddings.weight

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.lm_head(self.model(tokens, use_cache=False).last_hidden_state)
        return logits


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
