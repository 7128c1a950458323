"""The ways in which ranks average gradients: one row of DDP_VARIANTS each.

To add one, add a row and the class that it names in `trials/distributed/parallel/gradient_sync.py`.
"""

from dataclasses import dataclass
from typing import Literal

ALL_STATE = ("weights", "gradients", "optimizer_state")


@dataclass(frozen=True, kw_only=True)
class DdpVariant:
    """A way to average gradients over the ranks."""

    synchronizer: str | None = None
    """Class in `gradient_sync`; None without one, and for `fully_shard`."""
    call: Literal["weight", "model", "bucket", "block"] = "block"
    """What one collective carries."""
    overlaps: bool = True
    """Whether collectives run during backward."""
    shared: tuple[str, ...] = ()
    """What a rank holds only a share of."""
    in_groups: bool = False
    """Whether ranks share within groups that are replicas."""

    @property
    def fully_shards(self) -> bool:
        return "weights" in self.shared

    @property
    def repeats_by_layer(self) -> bool:
        """Whether each layer allocates alike: not if a bucket, a vector or a share of the state spans layers."""
        return self.call not in ("model", "bucket")


DDP_VARIANTS: dict[str, DdpVariant] = {
    "none": DdpVariant(),
    "naive": DdpVariant(synchronizer="Naive", call="weight", overlaps=False),
    "flat": DdpVariant(synchronizer="Flat", call="model", overlaps=False),
    "overlap": DdpVariant(synchronizer="Overlap", call="weight"),
    "bucketed": DdpVariant(synchronizer="Bucketed", call="bucket"),
    "torch": DdpVariant(synchronizer="TorchDdp", call="bucket"),
    "zero1": DdpVariant(synchronizer="Bucketed", call="bucket", shared=("optimizer_state",)),
    "zero2": DdpVariant(shared=ALL_STATE),
    "fsdp": DdpVariant(shared=ALL_STATE),
    "hsdp": DdpVariant(shared=ALL_STATE, in_groups=True),
}
"""Word of the field `ddp` -> the variant."""
