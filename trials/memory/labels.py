"""Labels for the tensors of a training step: what each is for, and which ones autograd saves for backward."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from lmsweep.trials.machine.torch_private import calls_wrapped, is_traceable_wrapper_subclass
from lmsweep.trials.memory.allocation_log import Label, Saved
from lmsweep.trials.memory.source_lines import Sources, python_stack
from lmsweep.trials.model.training_step import TrainingStep

Key = Callable[[Tensor], int]
"""A function that identifies a tensor's storage while the storage lives."""

_VIEWS = {
    *("view", "unsafe_view", "transpose", "permute", "t", "unsqueeze", "squeeze", "expand", "select", "slice", "alias"),
    *("split", "split_with_sizes", "unbind", "reshape_alias", "as_strided"),
}
"""Operators that compute nothing. The operator of their result is that of their argument."""


def lasting_tensors(step: TrainingStep) -> dict[str, list[Tensor]]:
    """Weights, optimizer state, batch and rotary tables, and the gradients that exist now, by category."""
    weights: list[Tensor] = list(step.model.parameters())
    own = [] if step.optimizer is None else [step.optimizer]
    wrapped = [held for one in own for held in vars(one).values() if isinstance(held, torch.optim.Optimizer)]
    states = chain.from_iterable(getattr(one, "state", {}).values() for one in own + wrapped)  # a wrapper may have none
    return {
        "weights": weights,
        "optimizer_state": [part for state in states for part in state.values() if isinstance(part, Tensor)],
        "inputs": [step.inputs, step.targets, *step.model.buffers()],
        "gradients": [weight.grad for weight in weights if weight.grad is not None],
    }


def lasting_labels(step: TrainingStep, key: Key) -> dict[int, Label]:
    device = step.inputs.device.type
    return {
        key(part): Label(category=category, bytes=part.untyped_storage().nbytes())
        for category, found in lasting_tensors(step).items()
        for tensor in found
        for part in plain_tensors(tensor)
        if part.device.type == device
    }


def plain_tensors(tensor: Tensor) -> list[Tensor]:
    """The tensors that hold the elements: itself, or the parts of a quantized one, which has no storage of its own."""
    if not is_traceable_wrapper_subclass(tensor):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in plain_tensors(getattr(tensor, name))]


@contextmanager
def activations_noted(step: TrainingStep, key: Key, sources: Sources) -> Iterator[dict[int, Label]]:
    """A context that collects the storages that autograd saves for backward, with block and line. Weights and rotary
    tables are left out; the batch is included. With checkpointing, the inputs of blocks are saved outside of the
    blocks. A model that is compiled as a whole has no blocks."""
    lasting = [*step.model.parameters(), *step.model.buffers()]
    resident = {key(part) for tensor in lasting for part in plain_tensors(tensor)}
    device = step.inputs.device
    kept: dict[int, Label] = {}
    running: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        for part in plain_tensors(tensor):
            storage = key(part)
            if part.device == device and storage not in resident and storage not in kept:
                block = running[-1] if running else None  # the innermost
                size = part.untyped_storage().nbytes()
                kept[storage] = Label(category="activations", bytes=size, block=block, tensor=_saved(tensor, sources))
        return tensor.detach()  # saving the tensor itself would create a reference cycle with its graph

    blocks: list[Any] = [] if step.config.compilation.whole else list(step.blocks)

    def numbered(number: int, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*inputs: Any, **named: Any) -> Any:
            running.append(number)
            try:
                return call(*inputs, **named)
            finally:
                running.pop()

        return run

    with calls_wrapped(blocks, numbered), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept


def _saved(tensor: Tensor, sources: Sources) -> Saved:
    frame = sources.nearest(python_stack())
    return Saved(
        shape="x".join(map(str, tensor.shape)),
        dtype=str(tensor.dtype).removeprefix("torch."),
        operator=_operator(tensor),
        **sources.location(frame),
    )


def _operator(tensor: Tensor) -> str | None:
    """The operator that computed the tensor, from the name of its node in autograd's graph: MulBackward0 is mul."""
    node: Any = tensor.grad_fn
    while node is not None:
        words = re.sub(r"Backward\d*$", "", node.name())
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", words).lower()
        if name not in _VIEWS:
            return name
        node = next((one for one, _ in node.next_functions if one is not None), None)
    return None
