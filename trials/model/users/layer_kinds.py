"""The kinds of a model's layers, as it builds them, and a context in which it builds some of them alone.

A configuration says in many ways which layers are dense, sparse, windowed or recurrent. The layers themselves say it in
one: those of one kind have equal modules, weights and settings.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import count
from typing import Any, cast

import torch
from torch import nn

INIT = "__init__"


@dataclass(frozen=True, kw_only=True)
class Layers:
    path: str
    """Path of the list of layers."""
    kinds: tuple[int, ...]
    """The kind of each layer; equal numbers are equal layers."""
    classes: tuple[type[nn.Module], ...]
    """Those of the layers, each once."""


class UnalikeError(Exception):
    """A model cannot be built of some of its layers."""


def layers_of(model: nn.Module) -> Layers | None:
    """Return the layers of a model, the longest of its outermost lists; None if something else in it has their class,
    or if it has no list of several."""
    lists = {name: list(one) for name, one in model.named_modules() if type(one) is nn.ModuleList and len(one) > 1}
    outermost = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    path = max(outermost, key=lambda name: len(lists[name]), default=None)
    if path is None:
        return None
    layers = lists[path]
    classes = tuple(dict.fromkeys(map(type, layers)))
    if sum(type(one) in classes for one in model.modules()) != len(layers):
        return None
    forms = _forms(layers, _stated(model, len(layers)))
    numbers: dict[Hashable, int] = {}
    kinds = tuple(numbers.setdefault(form, len(numbers)) for form in forms)
    return Layers(path=path, kinds=kinds, classes=classes)


def weights_of(model: nn.Module) -> tuple[int, int]:
    """Return how many weights a model has, each counted once, and their bytes."""
    found = list(model.parameters())
    return sum(one.numel() for one in found), sum(one.numel() * one.element_size() for one in found)


@contextmanager
def only(layers: Layers, kept: Sequence[int]) -> Iterator[Callable[[nn.Module], None]]:
    """A context in which a model of these layers builds those at the places `kept` and leaves the others empty. What it
    yields removes the empty ones from the model. It relies on layers being built in their order."""
    places, wanted = count(), frozenset(kept)
    building: nn.Module | None = None  # the layer that is being built

    def counted(make: Callable[..., None]) -> Callable[..., None]:
        @wraps(make)
        def init(layer: nn.Module, *args: Any, **kwargs: Any) -> None:
            nonlocal building
            if layer is building:  # a class calls the one that it extends
                make(layer, *args, **kwargs)
            elif next(places) in wanted:
                building = layer
                make(layer, *args, **kwargs)
                building = None
            else:
                nn.Module.__init__(layer)

        return init

    with ExitStack() as changed:
        for one in layers.classes:
            changed.enter_context(_init_replaced(one, counted(one.__init__)))
        yield lambda model: _remove_empty(model, layers, kept)


@contextmanager
def _init_replaced(owner: type, init: Callable[..., None]) -> Iterator[None]:
    own = vars(owner).get(INIT)
    setattr(owner, INIT, init)
    try:
        yield
    finally:
        if own:
            setattr(owner, INIT, own)
        else:  # it inherits one
            delattr(owner, INIT)


def _remove_empty(model: nn.Module, layers: Layers, kept: Sequence[int]) -> None:
    """Remove the layers that were not built, also from configurations: a model's forward may read their number, or a
    value for each. `attribute_map`: transformers' renamed fields. Raises UnalikeError if other layers were built."""
    found = list(model.get_submodule(layers.path).children())
    built = [place for place, one in enumerate(found) if any(True for _ in one.children())]  # empty ones have none
    if len(found) != len(layers.kinds) or built != list(kept):
        raise UnalikeError("its layers are not built in their order")
    model.set_submodule(layers.path, nn.ModuleList(found[place] for place in kept))
    for config in _configurations(model):
        for field, values in _per_layer(config, len(found)).items():
            vars(config)[field] = type(values)(values[place] for place in kept)
        named = getattr(config, "attribute_map", {}).get("num_hidden_layers", "num_hidden_layers")
        if vars(config).get(named) == len(found):
            vars(config)[named] = len(kept)


def _forms(layers: Sequence[nn.Module], stated: Sequence[dict[str, Hashable]]) -> list[Hashable]:
    """What distinguishes each layer from others, without its number. stated: as `_stated` returns it."""
    settings: list[dict[tuple[str, str], Hashable]] = []  # of each layer: path of a module and name -> value
    shapes: list[Hashable] = []
    for layer, given in zip(layers, stated, strict=True):
        modules = list(layer.named_modules())
        tensors = [*layer.named_parameters(), *layer.named_buffers()]
        classes = tuple((name, type(one)) for name, one in modules)
        weights = tuple((name, tuple(one.shape), one.dtype, one.requires_grad) for name, one in tensors)
        shapes.append((classes, weights))
        plain = {
            (path, name): value
            for path, module in modules
            for name, kept in vars(module).items()
            if not name.startswith("_") and (value := _plain(kept)) is not None
        }
        settings.append(plain | {("", f"stated {name}"): value for name, value in given.items()})
    numbered = {key for key in set().union(*settings) if _is_number(key, settings)}
    return [
        (shape, frozenset((key, value) for key, value in one.items() if key not in numbered))
        for shape, one in zip(shapes, settings, strict=True)
    ]


def _is_number(key: tuple[str, str], settings: Sequence[dict[tuple[str, str], Hashable]]) -> bool:
    """Whether a setting counts the layers: it grows by one from each to the next."""
    values = [(place, one[key]) for place, one in enumerate(settings) if key in one]
    if len(values) < 2 or not all(type(value) is int for _, value in values):
        return False
    return len({cast(int, value) - place for place, value in values}) == 1


def _plain(value: object) -> Hashable:
    """What of a setting may decide which operators a layer runs; None if nothing. Of a float it is whether it is 0: a
    scale or a dropout of 0 may leave an operator out."""
    if isinstance(value, float):
        return ("scale", value != 0)
    if isinstance(value, bool | int | str | torch.dtype):
        return value
    if isinstance(value, list | tuple) and all(isinstance(one, bool | int | str) for one in value):
        return tuple(value)
    return None


def _stated(model: nn.Module, layers: int) -> list[dict[str, Hashable]]:
    """For each layer: field -> what the model's configurations state of it, in lists with a value for each layer."""
    found: list[dict[str, Hashable]] = [{} for _ in range(layers)]
    for number, config in enumerate(_configurations(model)):
        for field, values in _per_layer(config, layers).items():
            for one, value in zip(found, values, strict=True):
                one[f"{number} {field}"] = value
    return found


def _configurations(model: nn.Module) -> list[Any]:
    """The configurations that the parts of a model refer to, each once."""
    configs = [one for module in model.modules() if hasattr(one := getattr(module, "config", None), "model_type")]
    return list({id(one): one for one in configs}.values())


def _per_layer(config: Any, layers: int) -> dict[str, Any]:
    """Field -> a list with one plain value for each layer."""
    return {
        name: value
        for name, value in vars(config).items()
        if isinstance(value, list | tuple)
        and len(value) == layers
        and all(isinstance(one, bool | int | float | str) for one in value)
    }
