"""Plain PyTorch that sets up a way, as `best` prints it."""

from typing import NamedTuple


class Recipe(NamedTuple):
    """Lines of Python about `model`, whose layers are in `model.blocks`."""

    facts: tuple[str, ...] = ()
    """What the reader's model does itself."""
    imports: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """Statements that change the model in place."""
    decorators: tuple[str, ...] = ()
    """Decorators of the function that runs a step."""
    around_forward: tuple[str, ...] = ()
    """One context manager around forward and loss."""
    forward: tuple[str, ...] = ()
    """Statements that compute `loss` from `inputs` and `targets`."""


def when(condition: object, *lines: str) -> tuple[str, ...]:
    return lines if condition else ()


def import_of(path: str | None) -> tuple[str, ...]:
    """Return the import of `package.module.Name`; none of PyTorch, which is called in full."""
    module, _, name = (path or "torch.").rpartition(".")
    return when(module.partition(".")[0] != "torch", f"from {module} import {name}")
