"""CUDA's operators for fake tensors on the CPU, where PyTorch chooses other ones by device.

They decide what is kept for backward: a mask of one byte for dropout, and what fused attention saves.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import OpOverload, kernels_replaced
from lmsweep.trials.prediction.without_device.cuda_autocast import cuda_autocast
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
