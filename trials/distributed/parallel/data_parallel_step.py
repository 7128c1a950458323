"""One rank's share of data-parallel training: a step with or without synchronization."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

from torch import nn

from lmsweep.trials.distributed.parallel.rank_model import build_rank_model, build_whole_step, compares_users_code
from lmsweep.trials.distributed.parallel.sharded_optimizer import local_optimizer
from lmsweep.trials.distributed.parallel.world import World
from lmsweep.trials.distributed.ranks.coordinator import AlignedRank
from lmsweep.trials.distributed.ranks.process_group import Synchronizer
from lmsweep.trials.machine.gpu.accelerator import synchronize
from lmsweep.trials.model.adapted_layers import trainable
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Iteration, Phase, clock_for, time_iteration

SYNCHRONIZATION = "synchronization"
"""Name of the phase between backward and the optimizer."""


class DataParallelStep(AlignedRank):
    """A data-parallel training step in one rank. Every method contains collectives or is timed against them, so all
    ranks must call it at the same time."""

    training: TrainingStep
    synchronizer: Synchronizer
    alone: TrainingStep | None
    """The same step in one process, built only if the wrapper or the optimizer is the user's. Communication inside the
    user's code cannot be disabled, so `local()` times this step. Results are compared with it, too."""

    def __init__(self, config: TrialConfig, math_mode: MathMode, world: World | None = None) -> None:
        super().__init__(config.device_type)
        self.config = config
        self.math_mode = math_mode
        self.clock = clock_for(config.device_type)
        self._world = world or World()

    def build(self) -> int:
        """Build the model and the whole batch; return the elements of all gradients of the whole model."""
        self.build_model()
        if compares_users_code(self.config):
            self.alone = build_whole_step(self.config, self.math_mode, self._first_weights)
        return self.gradient_count()

    def build_model(self) -> None:
        """Build the model, its optimizer and the whole batch."""
        built = build_rank_model(self.config, self.math_mode, self._world)
        self.training, self.synchronizer, self.batches = built.training, built.synchronizer, built.batches
        self.slices, self.slice = built.slices, built.slice
        self.alone, self._first_weights = None, built.first_weights

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

    def phases(self) -> list[Phase]:
        """The phases of one step in the configuration's mode, in order."""
        phases = list(self.training.phases())
        passes = 2 * self.config.accumulate  # forward and backward of each micro-batch; only the last one synchronizes
        held = [replace(phase, run=partial(self._hold, phase.run)) for phase in phases[: passes - 2]]
        finish = Phase(name=SYNCHRONIZATION, run=self.synchronizer.finish)
        return [*held, *phases[passes - 2 : passes], finish, *phases[passes:]]

    def run(self) -> None:
        """Run the phases, untimed, and wait for the device."""
        for phase in self.phases():
            phase.run()
        synchronize(self.config.device_type)

    def _hold(self, run: Callable[[], object]) -> None:
        with self.synchronizer.hold():
            run()

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

    def forget_gradients(self) -> None:
        """Release the graph and the gradients."""
        self.training.drop()
        self.training.model.zero_grad(set_to_none=True)
