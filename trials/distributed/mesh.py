"""The mesh of a trial's ranks: data-parallel groups of ranks that share each layer (tensor parallelism)."""

from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from lmsweep.trials.spec.config import TrialConfig


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """Where this rank is. Neighbouring ranks share layers, because their links are the fastest."""

    devices: DeviceMesh
    """(data-parallel, tensor-parallel) ranks."""

    @property
    def data(self) -> DeviceMesh:
        """The ranks with the same part of each layer, each with a slice of the batch of its own."""
        return self.devices["data"]

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
        return self.data.get_local_rank()


def mesh_of(config: TrialConfig) -> Mesh:
    """Return the mesh of all ranks; every rank must call it."""
    shape = (dist.get_world_size() // config.tp, config.tp)
    return Mesh(devices=init_device_mesh(config.device_type, shape, mesh_dim_names=("data", "tensor")))
