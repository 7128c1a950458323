"""The user's own model: built from a reference or a Hugging Face configuration, and adapted to the training step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from lmsweep.trials.code.calling import OFFERED, arguments_of, call
from lmsweep.trials.code.importing import load
from lmsweep.trials.machine.torch_private import FakeTensor, buffers_in, checkpointed, parameters_in
from lmsweep.trials.model.transformer.transformer import Transformer, keeping_products
from lmsweep.trials.model.users.hugging_face import from_hugging_face
from lmsweep.trials.model.users.users_forward import call_model, code_error, inputs_of, logits_of, mark_inputs
from lmsweep.trials.spec.config import RequestError, TrialConfig, UnsupportedError

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


def give_hidden(model: nn.Module, reference: str) -> Tensor:
    """Make a model return hidden states in place of logits; return the weight of its head. Raises UnsupportedError if
    the logits of a model of Hugging Face are not the product of the two."""
    if isinstance(model, Transformer):
        model.returns_hidden = True
        return model.head.weight
    head: Any = getattr(model, "get_output_embeddings", lambda: None)()
    made: list[Tensor] = []
    if head is not None and getattr(head, "bias", None) is None:
        with torch.no_grad():
            watching = head.register_forward_hook(lambda head, inputs, output: made.append(output))
            tokens = head.weight.new_zeros((1, 2), dtype=torch.long)  # two tokens, which are also the targets
            output = call_model(model, inputs_of(model), tokens, tokens)
            watching.remove()
    if not made or logits_of(output, (1, 2), reference) is not made[-1]:  # the model changes what its head made
        raise UnsupportedError(
            f"{reference} does more for its logits than multiply hidden states by the head's weight (a bias, a scale, "
            "a soft cap), which a loss of these two would leave out; use loss: cross_entropy or compiled"
        )
    head.forward = lambda hidden: hidden
    return cast(Tensor, head.weight)


@dataclass(frozen=True, kw_only=True)
class RepeatedLayers:
    path: str
    layers: list[nn.Module]

    def __str__(self) -> str:
        first = getattr(self.layers[0], CHECKPOINTED.rstrip("."), self.layers[0])
        return f"{self.path or 'the model itself'} ({len(self.layers)} x {type(first).__name__})"


def repeated_layers(model: nn.Module, path: str | None) -> RepeatedLayers | None:
    """Return the layers at `path`, else the outermost list of equal layers; None if there is none. Layers are equal if
    they are of one class; those without parts must have weights of equal names and shapes, too. Of several lists, those
    of layers with parts come first, then the longest. Raises RequestError if there is nothing at `path`."""
    if path is not None:
        try:
            named = model.get_submodule(path)
        except AttributeError as error:
            raise RequestError(f"blocks {path}: {error}") from None
        return RepeatedLayers(path=path, layers=list(named.children()))
    lists = {name: list(one) for name, one in model.named_modules() if isinstance(one, nn.ModuleList | nn.Sequential)}
    found = {name: layers for name, layers in lists.items() if _are_equal(layers)}
    outermost = [name for name in found if not any(_is_inside(name, other) for other in found)]
    best = max(outermost, key=lambda name: (_has_parts(found[name][0]), len(found[name])), default=None)
    return None if best is None else RepeatedLayers(path=best, layers=found[best])


def _is_inside(path: str, other: str) -> bool:
    return path != other and (not other or path.startswith(f"{other}."))  # the path of the model itself is empty


def _has_parts(layer: nn.Module) -> bool:
    return any(True for _ in layer.children())


def vocabulary_of(model: nn.Module, config: TrialConfig) -> int:
    """Return the vocabulary size; a Hugging Face model has that of its own configuration."""
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
    if _has_parts(layers[0]):
        return True
    weights_of_layers = [[(name, one.shape) for name, one in layer.named_parameters()] for layer in layers]
    return bool(weights_of_layers[0]) and all(weights == weights_of_layers[0] for weights in weights_of_layers)


def _checkpoint(model: nn.Module, config: TrialConfig) -> None:
    found = repeated_layers(model, config.blocks)
    if found is None:
        raise UnsupportedError(
            f"checkpointing needs repeated layers, and {config.model_code} has no list of equal layers; name the "
            "module that holds them with blocks:"
        )
    wanted = {id(block) for block in found.layers}
    kept = {"context_fn": keeping_products} if config.recomputation.keeps_products else {}
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if id(child) in wanted:
                setattr(parent, name, checkpointed(child, **kept))
