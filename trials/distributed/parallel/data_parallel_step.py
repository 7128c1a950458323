"""One rank's share of data-parallel training: its model, its slice of the batch, and where ranks synchronize."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer

from lmsweep.trials.distributed.parallel.fully_sharded import FullyShard
from lmsweep.trials.distributed.parallel.gradient_sync import SYNCHRONIZERS, MakeSynchronizer
from lmsweep.trials.distributed.parallel.tensor_parallel import DividedNaive, divide_layers
from lmsweep.trials.distributed.ranks.process_group import Synchronizer
from lmsweep.trials.model.adapted_layers import scales_of_stored, trainable
from lmsweep.trials.model.optimizer import make_optimizer, optimizer_class
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.optimizers import OPTIMIZERS
from lmsweep.trials.timing.clock import Phase

SYNCHRONIZATION = "synchronization"
"""Name of the phase between backward and the optimizer."""


class Mesh(NamedTuple):
    """Where this rank is. Neighbouring ranks share layers, because their links are the fastest."""

    data: DeviceMesh
    """The ranks with the same part of each layer, each with its slice of the batch; with hsdp (replicas, shards)."""
    tensor: DeviceMesh
    """The ranks that share each layer and compute the same slice of the batch."""


class DataParallelStep:
    """A data-parallel training step in one rank. Its methods contain collectives, so all ranks must call them."""

    synchronizers: Mapping[str, MakeSynchronizer] = SYNCHRONIZERS
    training: TrainingStep
    synchronizer: Synchronizer
    batches: list[Tensor]
    """Inputs and targets of all slices, equal on all ranks: (slices, batch, tokens) each."""
    slices: int
    slice: int
    """Index of this rank's slice."""

    def __init__(self, config: TrialConfig, math_mode: MathMode) -> None:
        self.config = config
        self.math_mode = math_mode
        self.token = torch.zeros(1, device=config.device_type)
        """What ranks send to wait for each other between steps. Each rank holds it, so predicted memory includes it."""

    def build_model(self) -> None:
        """Build model and batch, equal on all ranks; take this rank's slice; attach the synchronizer of `ddp`."""
        config = self.config
        mesh = self.mesh() if config.fully_shards or config.tp > 1 else None
        self.slices = mesh.data.size() if mesh else dist.get_world_size()
        self.slice = dist.get_rank() // config.tp
        self.training = training = self.whole_step()
        model = training.model
        for tensor in (*model.parameters(), *scales_of_stored(model)):
            dist.broadcast(tensor.detach(), src=0)
        self.note_whole()
        shape = (self.slices, config.batch_size, config.context_length)  # (slices, batch, tokens)
        self.batches = [torch.randint(config.vocab_size, shape, device=config.device_type) for _ in "xy"]
        for whole in self.batches:
            dist.broadcast(whole, src=0)
        training.inputs, training.targets = (whole[self.slice] for whole in self.batches)
        if mesh and config.tp > 1:
            divide_layers(training, mesh.tensor)
        self.synchronizer = self.attach(mesh)
        training.model = self.synchronizer.model
        if config.mode == "train_step":
            if config.ddp == "zero1":  # each rank updates its share of the weights and broadcasts them as one tensor
                training.optimizer = ZeroRedundancyOptimizer(
                    trainable(model),
                    optimizer_class=optimizer_class(config.optimizer),
                    parameters_as_bucket_view=True,
                    **OPTIMIZERS[config.optimizer].arguments,
                )
            elif mesh:  # dividing the model has made other parameters of its weights
                training.optimizer = make_optimizer(training.model, training.blocks, config)

    def mesh(self) -> Mesh:
        """The mesh of all ranks; every rank must call it."""
        config, slices = self.config, dist.get_world_size() // self.config.tp
        data = {"data": slices}
        if config.ddp == "hsdp":  # only the ranks of a group shard the weights
            data = {"replicas": slices // config.shard_ranks, "shards": config.shard_ranks}
        names, shape = (*data, "tensor"), (*data.values(), config.tp)
        devices = init_device_mesh(config.device_type, shape, mesh_dim_names=names)
        return Mesh(devices[tuple(data)], devices["tensor"])

    def whole_step(self) -> TrainingStep:
        """Return the step with the whole model, before ranks divide it."""
        return TrainingStep(self.config, self.math_mode)

    def note_whole(self) -> None:
        """For subclasses: called while each rank has the same whole model, before it is wrapped or divided."""

    def attach(self, mesh: Mesh | None) -> Synchronizer:
        if mesh and self.config.fully_shards:
            return FullyShard(self.training.model, self.training.blocks, self.config, mesh.data)
        if mesh:
            return DividedNaive(self.training.model, mesh.data, mesh.tensor)
        return self.synchronizers[self.config.ddp](self.training.model, self.config.bucket_bytes)

    def phases(self) -> list[Phase]:
        phases = list(self.training.phases())
        passes = 2 * self.config.accumulate  # forward and backward of each micro-batch; only the last one synchronizes
        held = [replace(phase, run=partial(self._hold, phase.run)) for phase in phases[: passes - 2]]
        finish = Phase(name=SYNCHRONIZATION, run=self.synchronizer.finish)
        return [*held, *phases[passes - 2 : passes], finish, *phases[passes:]]

    def _hold(self, run: Callable[[], object]) -> None:
        with self.synchronizer.hold():
            run()

    def forget_gradients(self) -> None:
        self.training.drop()
        self.training.model.zero_grad(set_to_none=True)


def compares_users_code(config: TrialConfig) -> bool:
    """Whether the wrapper or the optimizer is the user's: its results are compared with those of one process."""
    return is_reference(config.ddp) or is_reference(config.optimizer)
