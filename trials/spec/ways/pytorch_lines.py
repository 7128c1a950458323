"""Plain PyTorch that sets up a way, as `best` prints it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Lines of Python about `model`, whose layers are in `model.blocks`."""

    imports: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """They change the model in place."""
