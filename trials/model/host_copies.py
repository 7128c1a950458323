"""Activations and updates in the host's memory. In predictions, operators without effect stand for the copies."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.library import Library

from lmsweep.trials.machine.torch_private import FakeTensor, storage_key_of

_OPERATORS = Library("lmsweep", "FRAGMENT")
for _name in ("copy_to_host", "copy_to_device", "update_on_host"):  # HOST_OPERATORS of predictions, with their costs
    _OPERATORS.define(f"{_name}(Tensor x) -> ()")
    _OPERATORS.impl(_name, lambda x: None, "CompositeExplicitAutograd")


def saved_on_host(model: nn.Module) -> saved_tensors_hooks:
    """Return a context that moves what forward saves to pinned memory of the host, until backward asks for it. Weights
    and buffers of the model, which stay on the device anyway, are not moved."""
    staying = {storage_key_of(one.untyped_storage()) for one in (*model.parameters(), *model.buffers())}
    host = save_on_cpu(pin_memory=True)

    def pack(tensor: Tensor) -> Any:
        if storage_key_of(tensor.untyped_storage()) in staying:
            return tensor
        if isinstance(tensor, FakeTensor):  # it has no storage, and the host's memory does not count
            # PyTorch first makes a contiguous copy on the device of a tensor that is not contiguous.
            torch.ops.lmsweep.copy_to_host(tensor.contiguous())
            return partial(_copied_back, tensor.size(), dtype=tensor.dtype, device=tensor.device)
        return partial(host.unpack_hook, host.pack_hook(tensor))

    return saved_tensors_hooks(pack, lambda saved: saved if isinstance(saved, Tensor) else saved())


def save_inputs_on_host(modules: Sequence[nn.Module], method: str) -> None:
    """Wrap this method, which runs checkpoints, so that what it saves goes to the host: only the inputs of blocks,
    because inside of a checkpoint its own hooks apply."""
    for module in modules:
        setattr(module, method, partial(_with_inputs_on_host, module, getattr(module, method)))


def _with_inputs_on_host(module: nn.Module, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    with saved_on_host(module):  # in each call: `fully_shard` frees weights, and an input may get their key
        return call(*given, **named)


def _copied_back(size: torch.Size, **options: Any) -> Tensor:
    found = torch.empty(size, **options)
    torch.ops.lmsweep.copy_to_device(found)
    return found


def part_of(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that ranks share. Any other tensor as it is."""
    # A DTensor is recognized by its method, because its import takes half a second.
    return cast(Any, tensor).to_local() if hasattr(tensor, "to_local") else tensor


def update_fakes(weights: list[Tensor]) -> None:
    """Run the operators that stand for an update of these weights on the host, in the order of OptimizerOfCopies."""
    for name in ("copy_to_host", "update_on_host", "copy_to_device"):
        for weight in weights:
            getattr(torch.ops.lmsweep, name)(weight)
