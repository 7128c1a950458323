"""A rank's step with and without synchronization, and for the user's code the same step in one process."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from lmsweep.orchestrator.features.ddp.checked.coordinator import AlignedRank
from lmsweep.orchestrator.features.ddp.checked.users_wrapper import UsersWrapper
from lmsweep.trials.code.calling import arguments_of, call
from lmsweep.trials.code.importing import load
from lmsweep.trials.distributed.parallel.data_parallel_step import DataParallelStep, Mesh, compares_users_code
from lmsweep.trials.distributed.ranks.process_group import Synchronizer
from lmsweep.trials.machine.gpu.accelerator import synchronize
from lmsweep.trials.model.adapted_layers import trainable
from lmsweep.trials.model.optimizer import as_optimizer, class_parameter, make_optimizer, shards_state
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.spec.ways.optimizers import LEARNING_RATE
from lmsweep.trials.timing.clock import Iteration, clock_for, time_iteration


class ComparedStep(DataParallelStep, AlignedRank):
    """Every method contains collectives or is timed against them, so all ranks must call it at the same time."""

    alone: TrainingStep | None = None
    """The same step in one process, built only if the wrapper or the optimizer is the user's. Communication inside the
    user's code cannot be disabled, so `local()` switches to this step, for times and as the reference of results."""

    _first_weights: dict[str, NDArray[np.uint8]]
    """With the user's code, the model's first state, from `build_model`, which calls `note_whole`, until `alone` takes
    it. As bytes in NumPy arrays: these are not in the memory of tensors that is measured."""

    def __init__(self, config: TrialConfig, math_mode: MathMode) -> None:
        DataParallelStep.__init__(self, config, math_mode)
        self.device_type = config.device_type
        self.clock = clock_for(config.device_type)

    def build(self) -> int:
        """Build the model and the whole batch; return the elements of all gradients of the whole model."""
        self.build_model()
        if compares_users_code(self.config):
            self.alone = self._step_alone()
        return self.gradient_count()

    def build_model(self) -> None:
        super().build_model()
        training, config = self.training, self.config
        if config.mode == "train_step" and shards_state(config):
            training.optimizer = users_sharded_optimizer(training.model, config)
        elif config.mode == "train_step" and is_reference(config.ddp):
            # The wrapper may have replaced the parameters with which the optimizer was made.
            training.optimizer = make_optimizer(training.model, training.blocks, config)

    def whole_step(self) -> TrainingStep:
        """The step without the user's sharded optimizer: AdamW, which takes no memory yet, replaces it."""
        config = self.config
        if shards_state(config):
            config = replace(config, optimizer="adamw_foreach", optimizer_args=None)
        return TrainingStep(config, self.math_mode)

    def attach(self, mesh: Mesh | None) -> Synchronizer:
        if is_reference(self.config.ddp):
            return UsersWrapper(self.training.model, self.config)
        return super().attach(mesh)

    def note_whole(self) -> None:
        """Keep the first weights, before the model is wrapped."""
        self.alone, self._first_weights = None, {}
        if compares_users_code(self.config):
            for name, one in self.training.model.state_dict().items():
                self._first_weights[name] = one.detach().cpu().reshape(-1).view(torch.uint8).numpy().copy()

    def _step_alone(self) -> TrainingStep:
        """The same step in one process, without the user's wrapper or shards. It begins with `_first_weights`, and
        removes them."""
        whole = self.whole_step()
        for name, one in whole.model.state_dict().items():
            first = torch.from_numpy(self._first_weights.pop(name))
            one.copy_(first.view(one.dtype).reshape(one.shape))
        if shards_state(self.config) and self.config.mode == "train_step":
            whole.optimizer = whole_optimizer(whole.model, self.config)
        return whole

    def parameters(self) -> list[nn.Parameter]:
        return trainable(self.training.model)

    def gradient_count(self) -> int:
        return sum(weight.numel() for weight in trainable((self.alone or self.training).model))

    def take_slice(self, index: int, sequences: int | None = None) -> None:
        """Train on this slice of the batch: on its first `sequences` sequences, if given."""
        self.training.inputs, self.training.targets = (whole[index][:sequences] for whole in self.batches)

    def step(self, synchronized: bool = True) -> Iteration:
        """Time one step that all ranks start together: forward, backward, synchronization, optimizer."""
        with nullcontext() if synchronized else self.local():
            self.align()
            iteration = time_iteration(self.phases(), self.clock)
            self.forget_gradients()
        return iteration

    def run(self) -> None:
        for phase in self.phases():
            phase.run()
        synchronize(self.config.device_type)

    @contextmanager
    def local(self) -> Iterator[None]:
        """A context in which this rank neither sends anything nor waits for another rank."""
        training, synchronizer, optimizer = self.training, self.synchronizer, self.training.optimizer
        if self.alone:  # `training` is put aside with its optimizer
            self.training, self.synchronizer = self.alone, Synchronizer(self.alone.model)
        else:
            self.training.optimizer = local_optimizer(optimizer)
        try:
            with self.synchronizer.local():
                yield
        finally:
            self.training, self.synchronizer = training, synchronizer
            self.training.optimizer = optimizer


def local_optimizer(optimizer: torch.optim.Optimizer | None) -> torch.optim.Optimizer | None:
    """The optimizer that updates only this rank's share, without broadcasting; an unsharded one itself."""
    return optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer


SHARDED_CLASS = torch.optim.AdamW
"""The class of optimizer that is passed to the user's class, which shards its state."""


def users_sharded_optimizer(model: nn.Module, config: TrialConfig) -> torch.optim.Optimizer:
    """The user's optimizer, called with the weights, SHARDED_CLASS and arguments. The learning rate is passed if a
    parameter can take it. Raises RequestError and TypeError."""
    own = cast(Callable[..., object], load(config.optimizer))
    name = class_parameter(own)
    assert name is not None, "it takes the class of an optimizer"
    make = partial(own, trainable(model))
    arguments: dict[str, Any] = {name: SHARDED_CLASS, "lr": LEARNING_RATE, **arguments_of(config.optimizer_args)}
    parameters = inspect.signature(make).parameters
    if not _takes_learning_rate(parameters):
        del arguments["lr"]
    return as_optimizer(call(make, {}, arguments, config.optimizer), config)


def whole_optimizer(model: nn.Module, config: TrialConfig) -> torch.optim.Optimizer:
    """The unsharded optimizer that the user's is compared with: SHARDED_CLASS, with the learning rate and the arguments
    that the user's class has no parameter for, since it must pass these on: of (params, optimizer_class, bucket,
    **kwargs) not `bucket`."""
    parameters = inspect.signature(partial(cast(Callable[..., object], load(config.optimizer)), [])).parameters
    kept = {*parameters} - {"lr"}  # a class with this parameter passes it on
    passed_on = {name: value for name, value in arguments_of(config.optimizer_args).items() if name not in kept}
    if _takes_learning_rate(parameters):
        passed_on = {"lr": LEARNING_RATE} | passed_on
    return SHARDED_CLASS(trainable(model), **cast(dict[str, Any], passed_on))


def _takes_learning_rate(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return "lr" in parameters or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
