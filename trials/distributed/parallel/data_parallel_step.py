"""One rank's share of data-parallel training: its model, its slice of the batch, and where ranks synchronize."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from lmsweep.trials.distributed.parallel.fully_sharded import FullyShard
from lmsweep.trials.distributed.parallel.sharded_optimizer import (
    sharded_optimizer,
    shards_state,
    users_sharded_optimizer,
)
from lmsweep.trials.distributed.parallel.tensor_parallel import DividedNaive
from lmsweep.trials.distributed.parallel.users_wrapper import UsersWrapper
from lmsweep.trials.distributed.parallel.world import Mesh, World
from lmsweep.trials.distributed.ranks.process_group import Synchronizer
from lmsweep.trials.model.adapted_layers import scales_of_stored
from lmsweep.trials.model.optimizer import make_optimizer
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.timing.clock import Phase

SYNCHRONIZATION = "synchronization"
"""Name of the phase between backward and the optimizer."""


class DataParallelStep:
    """A data-parallel training step in one rank. Its methods contain collectives, so all ranks must call them."""

    training: TrainingStep
    synchronizer: Synchronizer
    batches: list[Tensor]
    """Inputs and targets of all slices, equal on all ranks: (slices, batch, tokens) each."""
    slices: int
    slice: int
    """Index of this rank's slice."""

    def __init__(self, config: TrialConfig, math_mode: MathMode, world: World | None = None) -> None:
        self.config = config
        self.math_mode = math_mode
        self._world = world or World()

    def build_model(self) -> None:
        """Build model and batch, equal on all ranks; take this rank's slice; attach the variant; make the optimizer."""
        config, world = self.config, self._world
        mesh = world.mesh(config) if config.fully_shards or config.tp > 1 else None
        self.slices = mesh.data.size() if mesh else dist.get_world_size()
        self.slice = dist.get_rank() // config.tp
        self.training = training = TrainingStep(with_whole_state(config), self.math_mode)
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
            world.divide_layers(training, mesh)
        self.synchronizer = _synchronizer(training, config, world, mesh)
        training.model = self.synchronizer.model
        if config.mode == "train_step":
            if config.ddp == "zero1":
                training.optimizer = sharded_optimizer(model, config)
            elif shards_state(config):
                training.optimizer = users_sharded_optimizer(training.model, config)
            elif is_reference(config.ddp) or mesh:  # the weights may be other parameters than the module's
                training.optimizer = make_optimizer(training.model, config)

    def note_whole(self) -> None:
        """Called while each rank has the whole model with the same weights, before it is wrapped or divided."""

    def phases(self) -> list[Phase]:
        """The phases of one step in the configuration's mode, in order."""
        phases = list(self.training.phases())
        passes = 2 * self.config.accumulate  # forward and backward of each micro-batch; only the last one synchronizes
        held = [replace(phase, run=partial(self._hold, phase.run)) for phase in phases[: passes - 2]]
        finish = Phase(name=SYNCHRONIZATION, run=self.synchronizer.finish)
        return [*held, *phases[passes - 2 : passes], finish, *phases[passes:]]

    def _hold(self, run: Callable[[], object]) -> None:
        with self.synchronizer.hold():
            run()

    def forget_gradients(self) -> None:
        """Release the graph and the gradients."""
        self.training.drop()
        self.training.model.zero_grad(set_to_none=True)


def _synchronizer(training: TrainingStep, config: TrialConfig, world: World, mesh: Mesh | None) -> Synchronizer:
    if is_reference(config.ddp):
        return UsersWrapper(training.model, config)
    if mesh and config.fully_shards:
        return FullyShard(training.model, training.blocks, config, mesh.data)
    if mesh:
        return DividedNaive(training.model, mesh.data, mesh.tensor)
    return world.synchronizers[config.ddp](training.model, config.bucket_bytes)


def compares_users_code(config: TrialConfig) -> bool:
    """Whether the wrapper or the optimizer is the user's: its results are compared with those of one process."""
    return is_reference(config.ddp) or is_reference(config.optimizer)


def with_whole_state(config: TrialConfig) -> TrialConfig:
    """The configuration with AdamW, which has no state before its step, in place of the user's sharded optimizer."""
    return replace(config, optimizer="adamw_foreach", optimizer_args=None) if shards_state(config) else config
