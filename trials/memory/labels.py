"""What the tensors of a training step are for, and which of them autograd keeps for backward."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.memory.ledger import Label
from lmsweep.trials.model.training_step import TrainingStep

Key = Callable[[Tensor], int]
"""What tells a tensor's storage from others."""


def lasting_labels(step: TrainingStep, key: Key) -> dict[int, Label]:
    """Weights, the optimizer's state, the batch and the rotary tables, and gradients that are there now."""
    weights = list(step.model.parameters())
    states = step.optimizer.state.values() if step.optimizer else ()
    device = step.inputs.device.type
    tensors: dict[str, list[Any]] = {
        "weights": weights,
        "optimizer_state": [part for state in states for part in state.values() if isinstance(part, Tensor)],
        "inputs": [step.inputs, step.targets, *step.model.buffers()],
        "gradients": [weight.grad for weight in weights if weight.grad is not None],
    }
    return {
        key(tensor): Label(category, tensor.untyped_storage().nbytes())
        for category, found in tensors.items()
        for tensor in found
        if tensor.device.type == device
    }


@contextmanager
def activations_noted(step: TrainingStep, key: Key) -> Iterator[dict[int, Label]]:
    """Notes what autograd keeps for backward of what runs inside, with the block that was running.

    Storages of weights and of the rotary tables do not count, as they are there anyway. The batch does. Checkpointing
    keeps the inputs of blocks from outside of them, and a model that is compiled whole has no blocks.
    """
    resident = {key(tensor) for tensor in [*step.model.parameters(), *step.model.buffers()]}
    device = step.inputs.device
    kept: dict[int, Label] = {}
    running: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        name = key(tensor)
        if tensor.device == device and name not in resident and name not in kept:
            block = running[-1] if running else None
            kept[name] = Label("activations", tensor.untyped_storage().nbytes(), block)
        return tensor.detach()  # the tensor itself would keep its own graph alive

    blocks: list[Any] = [] if step.config.compile == "model" else list(step.model.blocks)
    calls = [block._compiled_call_impl for block in blocks]

    def numbered(number: int, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            running.append(number)
            try:
                return call(*inputs)
            finally:
                running.pop()

        return run

    # Around a block rather than in one of its hooks, which torch.compile would make part of the graph.
    for number, block in enumerate(blocks):
        block._compiled_call_impl = numbered(number, block._compiled_call_impl or block._call_impl)
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield kept
    finally:
        for block, call in zip(blocks, calls, strict=True):
            block._compiled_call_impl = call
