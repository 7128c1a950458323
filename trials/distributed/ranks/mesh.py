"""The mesh of a trial's ranks: data-parallel groups of ranks that share each layer (tensor parallelism)."""

from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from lmsweep.trials.spec.config import TrialConfig

DATA = ("replicas", "shards")
"""The dimensions of a data-parallel mesh in which only the ranks of a group shard the weights."""


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """Where this rank is. Neighbouring ranks share layers, because their links are the fastest."""

    devices: DeviceMesh
    """(data-parallel, tensor-parallel) ranks; with hsdp (replicas, shards, tensor-parallel) ranks."""

    @property
    def data(self) -> DeviceMesh:
        """The ranks with the same part of each layer, each with a slice of the batch of its own."""
        return self.devices[DATA if DATA[0] in (self.devices.mesh_dim_names or ()) else "data"]

    @property
    def tensor(self) -> DeviceMesh:
        """The ranks that share each layer and compute the same slice of the batch."""
        return self.devices["tensor"]

    @property
    def slices(self) -> int:
        """Number of slices of the batch."""
        return self.data.size()

    @property
    def slice(self) -> int:
        """The slice of the batch that this rank computes."""
        return dist.get_rank() // self.tensor.size()


def mesh_of(config: TrialConfig) -> Mesh:
    """Return the mesh of all ranks; every rank must call it."""
    slices = dist.get_world_size() // config.tp
    shape: tuple[int, ...] = (slices, config.tp)
    names: tuple[str, ...] = ("data", "tensor")
    if config.ddp == "hsdp":
        shape, names = (slices // config.shard_ranks, config.shard_ranks, config.tp), (*DATA, "tensor")
    return Mesh(devices=init_device_mesh(config.device_type, shape, mesh_dim_names=names))
