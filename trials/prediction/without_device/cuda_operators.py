"""CUDA's operators for fake tensors on the CPU, where PyTorch chooses other ones by device.

They decide what is kept for backward: a mask of one byte for dropout, and what fused attention saves.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import (
    OpOverload,
    below_autocast_on_cpu,
    kernels_replaced,
    positional_names,
    tree_map_only,
)
from lmsweep.trials.model.emulated_autocast import WIDE, WIDE_RESULT, WIDEST
from lmsweep.trials.prediction.without_device.meta_device import FusedAttention
from lmsweep.trials.spec.config import TrialConfig

aten = torch.ops.aten


@contextmanager
def cuda_operators(config: TrialConfig) -> Iterator[None]:
    """A context in which operators on the CPU, without storage, allocate and save what those of CUDA do."""
    composite: dict[str, Callable[..., Tensor]] = {
        "dropout": _dropout,
        "scaled_dot_product_attention": FusedAttention(config).attend,
    }
    with kernels_replaced(composite, "CompositeImplicitAutograd"), cuda_autocast():
        yield


def _dropout(x: Tensor, p: float, train: bool) -> Tensor:
    """(...) to (...): CUDA keeps a mask of booleans, the CPU one of numbers."""
    if not train or p == 0.0 or not x.numel():
        return x
    dropped: Tensor = aten.native_dropout(x, p, train)[0]
    return dropped


def _log_sigmoid_backward(gradient: Tensor, *_: Tensor) -> Tensor:
    return torch.empty_like(gradient)


OUTPUTS: Mapping[OpOverload, Callable[..., Any]] = {
    # The CPU also keeps exponentials.
    aten.log_sigmoid_forward.default: lambda x: (torch.empty_like(x), x.new_empty(0)),
    aten.log_sigmoid_backward.default: _log_sigmoid_backward,
}
"""Operators whose results differ by device, as those of CUDA."""


@contextmanager
def cuda_autocast() -> Iterator[None]:
    """A context in which `torch.autocast("cpu")` has the rules of CUDA."""
    rules = ((WIDE, _in_float32), (WIDE_RESULT, _to_float32), (WIDEST, _in_the_widest))
    kernels = {name: kernel(_operator(name)) for names, kernel in rules for name in names}
    with kernels_replaced(kernels, "AutocastCPU"):
        yield


def _operator(name: str) -> OpOverload:
    packet, _, overload = name.partition(".")
    operator: OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return operator


def _in_float32(operator: OpOverload) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with below_autocast_on_cpu():
            return operator(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))

    return kernel


def _to_float32(operator: OpOverload) -> Callable[..., Any]:
    names = positional_names(operator)
    place = names.index("dtype") if "dtype" in names else None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if _is_eligible(args[0]):
            if place is None:
                kwargs["dtype"] = kwargs.get("dtype") or torch.float32
            elif len(args) <= place or args[place] is None:
                args = (*args[:place], *[None] * (place - len(args)), torch.float32)
        with below_autocast_on_cpu():
            return operator(*args, **kwargs)

    return kernel


def _in_the_widest(operator: OpOverload) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        found: list[torch.dtype] = []
        tree_map_only(Tensor, lambda x: found.append(x.dtype) if _is_eligible(x) else None, (args, kwargs))
        with below_autocast_on_cpu():
            if torch.float32 not in found:
                return operator(*args, **kwargs)
            return operator(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))

    return kernel


def _cast(arguments: Any, dtype: torch.dtype) -> Any:
    """The arguments with each tensor that autocast casts in this type."""
    return tree_map_only(Tensor, lambda x: x.to(dtype) if _is_eligible(x) else x, arguments)


def _is_eligible(x: object) -> bool:
    """Whether autocast casts it: not integers, and not float64."""
    return isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
