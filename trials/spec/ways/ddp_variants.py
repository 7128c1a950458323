"""The ways in which ranks average gradients: one record for each word of the field `ddp`.

To add one, add a record here and the class that it names in `trials/distributed/parallel/gradient_sync.py`.
"""

from dataclasses import dataclass
from typing import Literal

ALL_STATE = ("weights", "gradients", "optimizer_state")


@dataclass(frozen=True, kw_only=True)
class DdpVariant:
    """A way to average gradients over the ranks."""

    name: str
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


VARIANTS: tuple[DdpVariant, ...] = (
    DdpVariant(name="none"),
    DdpVariant(name="naive", synchronizer="Naive", call="weight", overlaps=False),
    DdpVariant(name="flat", synchronizer="Flat", call="model", overlaps=False),
    DdpVariant(name="overlap", synchronizer="Overlap", call="weight"),
    DdpVariant(name="bucketed", synchronizer="Bucketed", call="bucket"),
    DdpVariant(name="torch", synchronizer="TorchDdp", call="bucket"),
    DdpVariant(name="zero1", synchronizer="Bucketed", call="bucket", shared=("optimizer_state",)),
    DdpVariant(name="zero2", shared=ALL_STATE),
    DdpVariant(name="fsdp", shared=ALL_STATE),
    DdpVariant(name="hsdp", shared=ALL_STATE, in_groups=True),
)

DDP_VARIANTS: dict[str, DdpVariant] = {variant.name: variant for variant in VARIANTS}
