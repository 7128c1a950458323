"""A rank's step with and without synchronization, and the same step in one process."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from lmsweep.orchestrator.features.ddp.checked.coordinator import AlignedRank
from lmsweep.trials.code.calling import arguments_of
from lmsweep.trials.code.importing import load
from lmsweep.trials.distributed.parallel.data_parallel_step import (
    DataParallelStep,
    compares_users_code,
    with_whole_state,
)
from lmsweep.trials.distributed.parallel.sharded_optimizer import SHARDED_CLASS, shards_state, takes_any
from lmsweep.trials.distributed.ranks.process_group import Synchronizer
from lmsweep.trials.machine.gpu.accelerator import synchronize
from lmsweep.trials.model.adapted_layers import trainable
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.ways.optimizers import LEARNING_RATE
from lmsweep.trials.timing.clock import Iteration, clock_for, time_iteration


class ComparedStep(AlignedRank, DataParallelStep):
    """Every method contains collectives or is timed against them, so all ranks must call it at the same time."""

    alone: TrainingStep | None = None
    """The same step in one process, built only if the wrapper or the optimizer is the user's. Communication inside the
    user's code cannot be disabled, so `local()` times this step. Results are compared with it, too."""

    _first_weights: dict[str, NDArray[np.uint8]]
    """With the user's code, the model's state as bytes of NumPy, which do not count as tensors that a rank holds."""

    def __init__(self, config: TrialConfig, math_mode: MathMode) -> None:
        AlignedRank.__init__(self, config.device_type)
        DataParallelStep.__init__(self, config, math_mode)
        self.clock = clock_for(config.device_type)

    def build(self) -> int:
        """Build the model and the whole batch; return the elements of all gradients of the whole model."""
        self.build_model()
        if compares_users_code(self.config):
            self.alone = self._whole_step()
        return self.gradient_count()

    def note_whole(self) -> None:
        self.alone, self._first_weights = None, {}
        if compares_users_code(self.config):
            for name, one in self.training.model.state_dict().items():
                self._first_weights[name] = one.detach().cpu().reshape(-1).view(torch.uint8).numpy().copy()

    def _whole_step(self) -> TrainingStep:
        """The same step in one process, without the user's wrapper or shards, from the first weights, which it takes
        out."""
        whole = TrainingStep(with_whole_state(self.config), self.math_mode)
        for name, one in whole.model.state_dict().items():
            first = torch.from_numpy(self._first_weights.pop(name))
            one.copy_(first.view(one.dtype).reshape(one.shape))
        if shards_state(self.config) and self.config.mode == "train_step":
            whole.optimizer = whole_optimizer(whole.model, self.config)
        return whole

    def parameters(self) -> list[nn.Parameter]:
        """The weights that are trained."""
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
        """Run the phases, untimed, and wait for the device."""
        for phase in self.phases():
            phase.run()
        synchronize(self.config.device_type)

    @contextmanager
    def local(self) -> Iterator[None]:
        """A context in which this rank neither sends anything nor waits for another rank."""
        training, synchronizer, optimizer = self.training, self.synchronizer, self.training.optimizer
        if self.alone:
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


def whole_optimizer(model: nn.Module, config: TrialConfig) -> torch.optim.Optimizer:
    """The unsharded optimizer that the user's is compared with: SHARDED_CLASS, with those arguments that the user's
    class passes on to it."""
    parameters = inspect.signature(partial(cast(Callable[..., object], load(config.optimizer)), [])).parameters
    given = arguments_of(config.optimizer_args)
    passed_on = {name: value for name, value in given.items() if name not in parameters or name == "lr"}
    if "lr" in parameters or takes_any(parameters):
        passed_on = {"lr": LEARNING_RATE} | passed_on
    return SHARDED_CLASS(trainable(model), **cast(dict[str, Any], passed_on))
