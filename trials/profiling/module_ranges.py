"""Named ranges around the modules of the user's own model, by module path, such as `layers.3.attn`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from lmsweep.trials.model.annotations import Range
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.users.users_model import CHECKPOINTED
from lmsweep.trials.spec.words import Compile


@contextmanager
def modules_ranged(step: TrainingStep) -> Iterator[None]:
    """A context in which the modules of the user's model run inside ranges; lmsweep's model has its own."""
    open_ranges: list[Range] = []
    handles = []

    def enter(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any) -> None:
            open_ranges.append(Range(name))
            open_ranges[-1].__enter__()

        return hook

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        open_ranges.pop().__exit__(None, None, None)

    if step.config.model_code is not None:
        for name, module in ranged_modules(step.model, step.blocks, step.config.compile).items():
            handles.append(module.register_forward_pre_hook(enter(name), prepend=True))
            handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def ranged_modules(model: nn.Module, blocks: list[nn.Module], compiled: Compile) -> dict[str, nn.Module]:
    """The modules that get a range, by path: each block with its children, and outside of blocks each layer. Without
    those that torch.compile compiles, because a graph has kernels of several modules."""
    if compiled == "model":
        return {}
    found: dict[str, nn.Module] = {}
    inside = {id(module) for block in blocks for module in block.modules()}
    for name, module in model.named_modules():
        if name and id(module) not in inside and not any(True for _ in module.children()):
            found[name] = module
    for name, module in model.named_modules():
        if compiled == "none" and any(module is block for block in blocks):
            inner = getattr(module, "_checkpoint_wrapped_module", module)
            found[name] = module
            found |= {f"{name}.{child}": part for child, part in inner.named_children() if _runs(part)}
    return {name.replace(CHECKPOINTED, ""): module for name, module in found.items()}


def _runs(module: nn.Module) -> bool:
    """Whether it is called itself: a list of modules is not."""
    return not isinstance(module, nn.ModuleList | nn.ModuleDict | nn.ParameterList | nn.ParameterDict)
