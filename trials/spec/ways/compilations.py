"""What torch.compile compiles of a model. To add a way, add a row to COMPILATIONS."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Compilation:
    each_block: bool = False
    """Whether it compiles the repeated blocks one by one, which share one graph."""
    whole: bool = False
    """Whether it compiles the model into one graph."""
    same_graph: dict[str, Any] = field(default_factory=dict)
    """Fields, with values of the smallest configuration with the same graph."""
    seconds: tuple[float, float]
    """Seconds on one core to compile a graph, and each layer in it: rough, for the time estimate."""


COMPILATIONS: dict[str, Compilation] = {
    "none": Compilation(seconds=(6.0, 0.0)),  # of FlexAttention alone
    "block": Compilation(
        each_block=True,
        same_graph={"num_layers": 1, "checkpointing": "none"},  # which is around the compiled block
        seconds=(12.0, 0.0),
    ),
    "model": Compilation(whole=True, seconds=(6.0, 1.8)),
}
"""Word of the field `compile` -> what is compiled."""

EAGER: dict[str, Any] = {"compile": "none", "compile_mode": "default", "dynamic_shapes": False, "memory_budget": None}
"""The fields of a step that is not compiled."""

BY_BLOCK = tuple(name for name, one in COMPILATIONS.items() if one.each_block)
