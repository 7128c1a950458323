"""What one rank trains: its model, its slice of the batch, synchronizer and optimizer."""

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from lmsweep.trials.distributed.parallel.fully_sharded import FullyShard
from lmsweep.trials.distributed.parallel.sharded_optimizer import (
    sharded_optimizer,
    shards_state,
    users_sharded_optimizer,
    whole_optimizer,
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


@dataclass(frozen=True, kw_only=True)
class RankModel:
    """What is built in one rank, attached to the other ranks."""

    training: TrainingStep
    synchronizer: Synchronizer
    batches: list[Tensor]
    """Inputs and targets of all slices, equal on all ranks: (slices, batch, tokens) each."""
    slices: int
    slice: int
    """Index of this rank's slice."""
    first_weights: dict[str, NDArray[np.uint8]]
    """With the user's code, the model's state as bytes of NumPy, which do not count as tensors that a rank holds."""


def build_rank_model(config: TrialConfig, math_mode: MathMode, world: World) -> RankModel:
    """Build model and batch, equal on all ranks; take this rank's slice; attach the variant. All ranks must call it."""
    mesh = world.mesh(config) if config.fully_shards or config.tp > 1 else None
    slices = mesh.data.size() if mesh else dist.get_world_size()
    index = dist.get_rank() // config.tp
    shards_users_state = shards_state(config)
    training = TrainingStep(_with_whole_state(config), math_mode)
    for tensor in (*training.model.parameters(), *scales_of_stored(training.model)):
        dist.broadcast(tensor.detach(), src=0)
    first_weights: dict[str, NDArray[np.uint8]] = {}
    if compares_users_code(config):
        for name, one in training.model.state_dict().items():
            first_weights[name] = one.detach().cpu().reshape(-1).view(torch.uint8).numpy().copy()
    shape = (slices, config.batch_size, config.context_length)  # (slices, batch, tokens)
    batches = [torch.randint(config.vocab_size, shape, device=config.device_type) for _ in "xy"]
    for whole in batches:
        dist.broadcast(whole, src=0)
    training.inputs, training.targets = (whole[index] for whole in batches)
    model = training.model
    if mesh and config.tp > 1:
        world.divide_layers(training, mesh)
    synchronizer = _synchronizer(training, config, world, mesh)
    training.model = synchronizer.model
    if config.mode == "train_step":
        if config.ddp == "zero1":
            training.optimizer = sharded_optimizer(model, config)
        elif shards_users_state:
            training.optimizer = users_sharded_optimizer(training.model, config)
        elif is_reference(config.ddp) or mesh:  # the weights may be other parameters than the module's
            training.optimizer = make_optimizer(training.model, config)
    return RankModel(
        training=training,
        synchronizer=synchronizer,
        batches=batches,
        slices=slices,
        slice=index,
        first_weights=first_weights,
    )


def _synchronizer(training: TrainingStep, config: TrialConfig, world: World, mesh: Mesh | None) -> Synchronizer:
    if is_reference(config.ddp):
        return UsersWrapper(training.model, config)
    if mesh and config.fully_shards:
        return FullyShard(training.model, training.blocks, config, mesh.data)
    if mesh:
        return DividedNaive(training.model, mesh.data, mesh.tensor)
    return world.synchronizers[config.ddp](training.model, config.bucket_bytes)


def build_whole_step(
    config: TrialConfig, math_mode: MathMode, first_weights: dict[str, NDArray[np.uint8]]
) -> TrainingStep:
    """The same step in one process, without the user's wrapper or shards, from these weights, which it takes out."""
    whole = TrainingStep(_with_whole_state(config), math_mode)
    for name, one in whole.model.state_dict().items():
        first = torch.from_numpy(first_weights.pop(name))
        one.copy_(first.view(one.dtype).reshape(one.shape))
    if shards_state(config) and config.mode == "train_step":
        whole.optimizer = whole_optimizer(whole.model, config)
    return whole


def compares_users_code(config: TrialConfig) -> bool:
    """Whether the wrapper or the optimizer is the user's: its results are compared with those of one process."""
    return is_reference(config.ddp) or is_reference(config.optimizer)


def _with_whole_state(config: TrialConfig) -> TrialConfig:
    """The configuration with AdamW, which has no state before its step, in place of the user's sharded optimizer."""
    return replace(config, optimizer="adamw_foreach", optimizer_args=None) if shards_state(config) else config
