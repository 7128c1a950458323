"""What waits in the host's memory. To add a way, add a row to OFFLOADS."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Offload:
    saved: Literal["all", "block_inputs"] | None = None
    """What autograd saves that waits on the host: everything but weights, or the inputs of checkpointed blocks, as
    Unsloth and axolotl do."""
    updates: bool = False
    """Whether the optimizer's state stays on the host, which updates the weights (Ren et al. 2021)."""
    fact: str | None = None
    """What a recipe says of it."""


OFFLOADS: dict[str, Offload] = {
    "none": Offload(),
    "activations": Offload(
        saved="all", fact="torch.autograd.graph.save_on_cpu(pin_memory=True) moves what forward saves, weights excepted"
    ),
    "block_inputs": Offload(
        saved="block_inputs",
        fact="torch.autograd.graph.save_on_cpu(pin_memory=True) around each checkpoint moves the inputs of blocks",
    ),
    "optimizer": Offload(
        updates=True,
        fact="The optimizer has copies of the weights in pinned host memory; gradients and weights are copied",
    ),
}
"""Word of the field `offload` -> what waits."""
