"""The ranks of a trial: their mesh, and the part of each layer that this one has.

Tensor parallelism shares each layer of lmsweep's model, by PyTorch's DTensor. As in Megatron-LM (Shoeybi et al. 2019),
the projections into heads and into the feed-forward layer are divided by columns, those back into the residual stream
by rows, whose results an all-reduce adds up. Norms, embedding and head are whole in each rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

from lmsweep.trials.distributed.parallel.gradient_sync import SYNCHRONIZERS, MakeSynchronizer
from lmsweep.trials.model.optimizer import make_named
from lmsweep.trials.model.transformer.transformer import Block
from lmsweep.trials.spec.config import TrialConfig

DATA = ("replicas", "shards")
"""The dimensions of a data-parallel mesh in which only the ranks of a group shard the weights."""
COLUMNS = ("attention.query", "attention.key", "attention.value", "feed_forward.w1", "feed_forward.w3")
"""The layers of a block that are divided by outputs."""
ROWS = ("attention.output", "feed_forward.w2")
"""The layers of a block that are divided by inputs."""


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """Where this rank is. Neighbouring ranks share layers, because their links are the fastest."""

    devices: DeviceMesh
    """(data-parallel, tensor-parallel) ranks; with hsdp (replicas, shards, tensor-parallel) ranks."""

    @property
    def data(self) -> DeviceMesh:
        """The ranks with the same part of each layer, each with its own slice of the batch."""
        return self.devices[DATA if DATA[0] in (self.devices.mesh_dim_names or ()) else "data"]

    @property
    def tensor(self) -> DeviceMesh:
        """The ranks that share each layer and compute the same slice of the batch."""
        return self.devices["tensor"]


class World:
    """All ranks of a trial, as this one sees them."""

    synchronizers: Mapping[str, MakeSynchronizer] = SYNCHRONIZERS

    def mesh(self, config: TrialConfig) -> Mesh:
        """The mesh of all ranks; every rank must call it."""
        slices = dist.get_world_size() // config.tp
        shape: tuple[int, ...] = (slices, config.tp)
        names: tuple[str, ...] = ("data", "tensor")
        if config.ddp == "hsdp":
            shape, names = (slices // config.shard_ranks, config.shard_ranks, config.tp), (*DATA, "tensor")
        return Mesh(devices=init_device_mesh(config.device_type, shape, mesh_dim_names=names))

    def divide_layers(self, blocks: list[nn.Module], mesh: Mesh) -> None:
        """Leave this rank its part of each block's weights."""
        divide_layers(blocks, mesh.tensor)


def divide_layers(blocks: list[nn.Module], mesh: DeviceMesh) -> None:
    """Replace the weights of COLUMNS and ROWS in each block by this rank's part of them."""
    for block in blocks:
        assert isinstance(block, Block), "the model is lmsweep's own"
        layers = dict(block.named_modules())
        for name in COLUMNS:
            if name in layers:
                distribute_module(layers[name], mesh, _by_columns, _replicated_input, _local_output)
        for name in ROWS:
            distribute_module(layers[name], mesh, _by_rows, _divided_input, _summed_output)


def _divide(dimension: int, _: str, module: nn.Module, mesh: DeviceMesh) -> None:
    """Shard the weight (d_out, d_in) along a dimension."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        part = distribute_tensor(parameter.detach(), mesh, [Shard(dimension)])
        module.register_parameter(name, nn.Parameter(part))


_by_columns, _by_rows = partial(_divide, 0), partial(_divide, 1)


def _replicated_input(module: nn.Module, inputs: tuple[Tensor, ...], mesh: DeviceMesh) -> Any:
    return DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False)


def _divided_input(module: nn.Module, inputs: tuple[Tensor, ...], mesh: DeviceMesh) -> Any:
    return DTensor.from_local(inputs[0], mesh, [Shard(-1)], run_check=False)


def _local_output(module: nn.Module, output: DTensor, mesh: DeviceMesh) -> Any:
    return output.to_local()


def _summed_output(module: nn.Module, output: DTensor, mesh: DeviceMesh) -> Any:
    return output.redistribute(placements=[Replicate()]).to_local()


def divided_optimizer(model: nn.Module, config: TrialConfig) -> torch.optim.Optimizer:
    """The optimizer of this rank's parts, in groups: a kernel takes weights of one mesh, or undivided ones."""
    meshes: dict[DeviceMesh | None, list[Tensor]] = {}
    for parameter in model.parameters():
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        meshes.setdefault(mesh, []).append(parameter)
    return make_named(config.optimizer, [{"params": parameters} for parameters in meshes.values()])
