"""The user's own model: built from a reference or a Hugging Face configuration, and adapted to the training step."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from lmsweep.trials.code.calling import OFFERED, arguments_of, call
from lmsweep.trials.code.hub_configurations import shipped_configuration
from lmsweep.trials.code.importing import code_in_use, load
from lmsweep.trials.machine.torch_private import FakeTensor, buffers_in, checkpointed, parameters_in
from lmsweep.trials.model.users.users_forward import code_error, mark_inputs
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError
from lmsweep.trials.spec.reference import HUGGING_FACE
from lmsweep.trials.spec.ways.attentions import ATTENTIONS

CHECKPOINTED = "_checkpoint_wrapped_module."
"""What PyTorch's checkpoint wrapper adds to the path of a weight or module."""


def build_users_model(config: TrialConfig, *, device: str, dtype: torch.dtype) -> nn.Module:
    """Build the model that the configuration refers to, on the device, with its weights in `dtype`. Raises RequestError
    if its signature does not fit, UnsupportedError if a field of the configuration cannot apply to it, CodeError if it
    is not a module, and what the user's code raises."""
    assert config.model_code is not None, "the configuration refers to a model"
    arguments = arguments_of(config.model_args)
    model: object
    with torch.device(device):
        if config.is_hugging_face:
            model = from_hugging_face(config, arguments, dtype=dtype)
        else:
            function = cast(Callable[..., Any], load(config.model_code))
            values = {name: getattr(config, name) for name in OFFERED}
            offered = {name: value for name, value in values.items() if value} | {"device": device, "dtype": dtype}
            model = call(function, offered, arguments, config.model_code)
    if not isinstance(model, nn.Module):
        raise code_error(config.model_code, f"returned a {type(model).__name__}; a model is a torch.nn.Module")
    if any(parameter.is_floating_point() and parameter.dtype != dtype for parameter in model.parameters()):
        _convert(model, dtype)
    if any(tensor.device.type != device for tensor in (*model.parameters(), *model.buffers())):
        model = model.to(device)
    mark_inputs(model, config, device)
    model.train(config.mode != "forward")
    if config.checkpointing != "none":
        _checkpoint(model, config)
    return model


@dataclass(frozen=True, kw_only=True)
class RepeatedLayers:
    path: str
    layers: list[nn.Module]

    def __str__(self) -> str:
        first = getattr(self.layers[0], CHECKPOINTED.rstrip("."), self.layers[0])
        return f"{self.path or 'the model itself'} ({len(self.layers)} x {type(first).__name__})"


def repeated_layers(model: nn.Module, path: str | None) -> RepeatedLayers | None:
    """Return the layers at `path`, else the outermost list of equal layers; None if there is none. Layers are equal if
    they are of one class; those without parts must have equal weights too. Of several lists, the longest of layers with
    parts counts. Raises RequestError if there is nothing at `path`."""
    if path is not None:
        try:
            named = model.get_submodule(path)
        except AttributeError as error:
            raise RequestError(f"blocks {path}: {error}") from None
        return RepeatedLayers(path=path, layers=list(named.children()))
    lists = {name: list(one) for name, one in model.named_modules() if isinstance(one, nn.ModuleList | nn.Sequential)}
    found = {name: layers for name, layers in lists.items() if _are_equal(layers)}
    outermost = [
        name
        for name in found
        if not any(name != other and (not other or name.startswith(f"{other}.")) for other in found)
    ]
    best = max(outermost, key=lambda name: (_has_parts(found[name][0]), len(found[name])), default=None)
    return None if best is None else RepeatedLayers(path=best, layers=found[best])


def _has_parts(layer: nn.Module) -> bool:
    return any(True for _ in layer.children())


def vocabulary_of(model: nn.Module, config: TrialConfig) -> int:
    """Return the number of tokens: of a Hugging Face model, that of its own configuration."""
    if config.is_hugging_face:
        described: Any = model.config
        return int(described.get_text_config().vocab_size)
    return config.vocab_size


def _convert(model: nn.Module, dtype: torch.dtype) -> None:
    """Convert weights and buffers; also those of fake tensors, which `Module.to` cannot replace."""
    if not any(isinstance(parameter, FakeTensor) for parameter in model.parameters()):
        model.to(dtype)
        return
    converted: dict[int, nn.Parameter] = {}  # a tied weight stays one
    for module in model.modules():
        for name, weight in parameters_in(module).items():
            if weight is not None and weight.is_floating_point():
                if id(weight) not in converted:
                    converted[id(weight)] = nn.Parameter(weight.detach().to(dtype), weight.requires_grad)
                parameters_in(module)[name] = converted[id(weight)]
        for name, buffer in buffers_in(module).items():
            if buffer is not None and buffer.is_floating_point():
                buffers_in(module)[name] = buffer.to(dtype)


def _are_equal(layers: list[nn.Module]) -> bool:
    if len(layers) < 2 or len({type(layer) for layer in layers}) > 1:
        return False
    if not isinstance(layers[0], nn.Module):  # some lists hold None
        return False
    shapes = {tuple((name, tuple(one.shape)) for name, one in layer.named_parameters()) for layer in layers}
    return _has_parts(layers[0]) or (len(shapes) == 1 and shapes != {()})


def _checkpoint(model: nn.Module, config: TrialConfig) -> None:
    found = repeated_layers(model, config.blocks)
    if found is None:
        raise UnsupportedError(
            f"checkpointing needs repeated layers, and {config.model_code} has no list of equal layers; name it by "
            "blocks"
        )
    wanted = {id(block) for block in found.layers}
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if id(child) in wanted:
                setattr(parent, name, checkpointed(child))


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
