"""One rank's share of data-parallel training: a step with or without synchronization."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from lmsweep.trials.distributed.parallel.memory_stages import Held, MemoryWatch
from lmsweep.trials.distributed.parallel.rank_model import build_rank_model, build_whole_step, compares_users_code
from lmsweep.trials.distributed.parallel.sharded_optimizer import local_optimizer, state_bytes
from lmsweep.trials.distributed.parallel.world import World
from lmsweep.trials.distributed.ranks.coordinator import WatchedRank
from lmsweep.trials.distributed.ranks.process_group import Mean, Synchronizer
from lmsweep.trials.lengths.batches import batches
from lmsweep.trials.machine.gpu.accelerator import counts_memory, device_module, peak_allocated, reset_peak, synchronize
from lmsweep.trials.model.adapted_layers import trainable
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Iteration, Phase, clock_for, time_iteration

SYNCHRONIZATION = "synchronization"
"""Name of the phase between backward and the optimizer."""


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Memory of one rank, bytes."""

    peak_allocated: int | None
    """None on devices where PyTorch does not count what it allocates."""
    optimizer_state: int | None
    """None if the user's class keeps its state where it cannot be found."""


class DataParallelStep(WatchedRank):
    """A data-parallel training step in one rank. Every method contains collectives or is timed against them, so all
    ranks must call it at the same time."""

    training: TrainingStep
    synchronizer: Synchronizer
    alone: TrainingStep | None
    """With the user's wrapper or optimizer, the same step in one process without either: their communication has no
    known switch, and their results are compared with this one's."""

    def __init__(self, config: TrialConfig, math_mode: MathMode, world: World | None = None) -> None:
        super().__init__(config.device_type)
        self.config = config
        self.math_mode = math_mode
        self.clock = clock_for(config.device_type)
        self.vector: Tensor | None = None
        """As many elements as there are gradients, for `time_all_reduce`."""
        self.memory_watch = None if config.compiles else MemoryWatch(config.device_type)
        """Sees what is allocated; not in compiled code."""
        self.after_init: Held | None = None
        """What this rank holds once everything is built; None if unknown."""
        self._world = world or World()

    def build(self) -> int:
        """Build the model and the whole batch; return the elements of all gradients of the whole model."""
        self._build()
        if self.memory_watch:
            self.align()  # gloo's threads hold what they have sent until the next collective
            self.after_init = self.memory_watch.held(self.training)
        if compares_users_code(self.config):  # after everything else, so that `after_init` does not count it
            self.alone = build_whole_step(self.config, self.math_mode, self._first_weights)
        return self._gradient_count()

    def rebuild(self) -> None:
        """Build everything again after a failure has left sharded weights in an unknown state."""
        del self.training, self.synchronizer
        while gc.collect():  # the first pass frees what only PyTorch's own objects refer to, such as hooks
            pass
        if counts_memory(self.config.device_type):
            device_module(self.config.device_type).empty_cache()
        self._build()

    def _build(self) -> None:
        with self.memory_watch or nullcontext():
            built = build_rank_model(self.config, self.math_mode, self._world)
        self.training, self.synchronizer, self.batches = built.training, built.synchronizer, built.batches
        self.slices, self.slice = built.slices, built.slice
        self.alone, self._first_weights = None, built.first_weights
        self.restart()

    def parameters(self) -> list[nn.Parameter]:
        """The weights that are trained."""
        return trainable(self.training.model)

    def _gradient_count(self) -> int:
        return sum(weight.numel() for weight in trainable((self.alone or self.training).model))

    def time_all_reduce(self) -> float:
        """Seconds of an isolated all-reduce of as many elements as the model has gradients."""
        if self.vector is None:
            kind = self.math_mode.parameter_dtype
            self.vector = torch.randn(self._gradient_count(), device=self.config.device_type, dtype=kind)
        mean, vector = Mean(), self.vector
        self.align()
        phase = Phase(name="all_reduce", run=lambda: mean.start(vector).wait())
        return time_iteration([phase], self.clock).step

    def take_slice(self, index: int, sequences: int | None = None) -> None:
        """Train on a slice of the batch, or on the given number of sequences of it."""
        self.training.inputs, self.training.targets = (whole[index][:sequences] for whole in self.batches)

    def restart(self) -> None:
        """Begin with the first batch again, where batches differ by their lengths: each rank has its own."""
        if self.config.varies:
            self.training.draw_from(batches(self.config, self.slice, self.slices))

    def advance(self) -> None:
        """Take the next batch, if batches differ."""
        self.training.advance()

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
        passes = 2 * self.config.accumulate
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

    def reset_peak_memory(self) -> None:
        """Reset the peak of allocated memory. With the user's code, no local step can run after this."""
        self.alone = None  # training does not hold it
        reset_peak(self.config.device_type)

    def memory(self) -> RankMemory:
        """Memory of this rank since `reset_peak_memory`."""
        return RankMemory(
            peak_allocated=peak_allocated(self.config.device_type), optimizer_state=state_bytes(self.training.optimizer)
        )
