"""One rank's share of data-parallel training: its slice of the batch, and a step with or without synchronization."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from lmsweep.trials.distributed.parallel.fully_sharded import FullyShard, gathered
from lmsweep.trials.distributed.parallel.gradient_buckets import gradient_of
from lmsweep.trials.distributed.parallel.gradient_sync import SYNCHRONIZERS, Naive, NoSynchronizer, Synchronizer
from lmsweep.trials.distributed.parallel.memory_stages import Held, MemoryWatch
from lmsweep.trials.distributed.parallel.relative_error import largest_error
from lmsweep.trials.distributed.parallel.sharded_optimizer import (
    own_optimizer,
    sharded_optimizer,
    shards_state,
    state_bytes,
    users_sharded_optimizer,
    whole_optimizer,
)
from lmsweep.trials.distributed.parallel.tensor_parallel import divide_layers, divided_optimizer
from lmsweep.trials.distributed.parallel.users_wrapper import OwnWrapper
from lmsweep.trials.distributed.ranks.mesh import mesh_of
from lmsweep.trials.distributed.ranks.process_group import Mean
from lmsweep.trials.distributed.ranks.watched_rank import WatchedRank
from lmsweep.trials.distributed.traffic.comm_trace import Communication, trace_communication
from lmsweep.trials.machine.gpu.accelerator import counts_memory, device_module, peak_allocated, reset_peak, synchronize
from lmsweep.trials.model.optimizer import make_optimizer
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import is_reference
from lmsweep.trials.timing.clock import Iteration, Phase, clock_for, time_iteration

SYNCHRONIZATION = "synchronization"
"""Name of the phase between backward and the optimizer."""

CHECKED_STEPS = 2
"""Steps after which the weights that the user's code leaves are compared: the second shows what the first has set."""


class WeightsDigest(NamedTuple):
    """Two numbers that differ between ranks whose weights differ."""

    sum: float
    """Sum of all weights, in float64."""
    sum_of_squares: float
    """Sum of their squares, in float64."""


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Memory of one rank."""

    peak_allocated: int | None
    """Most bytes handed out by PyTorch's allocator at once; None on devices where PyTorch does not count them."""
    optimizer_state: int | None
    """Bytes of the optimizer's state; None if the user's class keeps it where it cannot be found."""


class DataParallelStep(WatchedRank):
    """A data-parallel training step in one rank, driven by the orders of rank 0 (`orders`).

    Every method contains collectives or is timed against them, so all ranks must call it at the same time.
    """

    training: TrainingStep
    synchronizer: Synchronizer
    alone: TrainingStep | None
    """If the wrapper or the optimizer is the user's: the same step in one process, without either. The user's code has
    no switch that turns its communication off, and its results are compared with this one's."""

    def __init__(self, config: TrialConfig, math_mode: MathMode) -> None:
        super().__init__(config.device_type)
        self.config = config
        self.math_mode = math_mode
        self.clock = clock_for(config.device_type)
        self._vector: Tensor | None = None
        self.memory_watch = None if config.compiles else MemoryWatch(config.device_type)
        """Sees what is allocated; not in compiled code."""
        self.after_init: Held | None = None
        """What this rank holds once everything is built; None if unknown."""

    def time_all_reduce(self) -> float:
        """Seconds of an isolated all-reduce of as many elements as the model has gradients."""
        if self._vector is None:
            kind = self.math_mode.parameter_dtype
            self._vector = torch.randn(self.gradient_count(), device=self.config.device_type, dtype=kind)
        mean, vector = Mean(), self._vector
        self.align()
        phase = Phase(name="all_reduce", run=lambda: mean.start(vector).wait())
        return time_iteration([phase], self.clock).step

    def build(self) -> None:
        """Build the model and the whole batch, both equal on all ranks; take this rank's slice; attach the variant."""
        with self.memory_watch or nullcontext():
            self._build()
        if self.memory_watch:
            self.align()  # gloo's threads hold what they have sent until the next collective
            self.after_init = self.memory_watch.held(self.training)
        if is_own(self.config):
            self._build_alone()

    def rebuild(self) -> None:
        """Build everything again after a failure has left sharded weights in an unknown state."""
        del self.training, self.synchronizer
        while gc.collect():  # the first pass frees what only PyTorch's own objects refer to, such as hooks
            pass
        if counts_memory(self.config.device_type):
            device_module(self.config.device_type).empty_cache()
        with self.memory_watch or nullcontext():
            self._build()

    def _build(self) -> None:
        config, rank = self.config, dist.get_rank()
        mesh = mesh_of(config) if config.fully_shards or config.tp > 1 else None
        self.slices, self.slice = (mesh.slices, mesh.slice) if mesh else (dist.get_world_size(), rank)
        sharded = shards_state(config)
        self.training = TrainingStep(self._plain(), self.math_mode)
        for parameter in self.training.model.parameters():
            dist.broadcast(parameter.detach(), src=0)
        self.alone, self._first_weights = None, {}
        if is_own(config):  # NumPy's, so that they are no tensors that a rank holds
            self._first_weights = {name: _bytes_of(one) for name, one in self.training.model.state_dict().items()}
        shape = (self.slices, config.batch_size, config.context_length)  # (slices, batch, tokens)
        self.batches = [torch.randint(config.vocab_size, shape, device=config.device_type) for _ in "xy"]
        for whole in self.batches:
            dist.broadcast(whole, src=0)
        self._take_slice(self.slice)
        model = self.training.model
        if mesh and config.tp > 1:
            divide_layers(self.training.blocks, mesh.tensor)
        if is_reference(config.ddp):
            self.synchronizer = OwnWrapper(model, config)
        elif mesh and config.fully_shards:
            self.synchronizer = FullyShard(model, self.training.blocks, config, mesh.data)
        elif mesh:
            self.synchronizer = Naive(model, mesh.data.get_group())
        else:
            self.synchronizer = SYNCHRONIZERS[config.ddp](model, config.bucket_bytes)
        self.training.model = self.synchronizer.model
        if config.mode != "train_step":
            return
        if config.ddp == "zero1":
            self.training.optimizer = sharded_optimizer(model, config)
        elif sharded:
            self.training.optimizer = users_sharded_optimizer(self.training.model, config)
        elif config.tp > 1:
            self.training.optimizer = divided_optimizer(model, config)
        elif is_reference(config.ddp) or config.fully_shards:  # the weights may be other parameters than the module's
            self.training.optimizer = make_optimizer(self.training.model, config)

    def _plain(self) -> TrialConfig:
        """The configuration without the user's sharded optimizer, in whose place AdamW has no state before its step."""
        if shards_state(self.config):
            return replace(self.config, optimizer="adamw_foreach", optimizer_args=None)
        return self.config

    def _build_alone(self) -> None:
        """Build `alone` with the first weights, after everything else, so that `after_init` does not count it."""
        config = self.config
        self.alone = TrainingStep(self._plain(), self.math_mode)
        for name, one in self.alone.model.state_dict().items():
            first = torch.from_numpy(self._first_weights.pop(name))
            one.copy_(first.view(one.dtype).reshape(one.shape))
        if shards_state(config) and config.mode == "train_step":
            self.alone.optimizer = whole_optimizer(self.alone.model, config)

    def parameters(self) -> list[Tensor]:
        """The weights that are trained."""
        return [parameter for parameter in self.training.model.parameters() if parameter.requires_grad]

    def gradient_count(self) -> int:
        """Elements of all gradients of the whole model."""
        model = (self.alone or self.training).model
        return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)

    def forget_vector(self) -> None:
        """Free the vector of `time_all_reduce`."""
        self._vector = None

    def weights_error(self) -> float:
        """Largest relative error, over parameters, of what CHECKED_STEPS steps of the user's code add to the weights.

        The reference is one process that goes through the whole batch, without the user's wrapper and with an optimizer
        that holds all of its state. Relative error: norm of the difference / norm of what the reference adds.
        """
        before = [weight.clone() for weight in self._weights()]
        for _ in range(CHECKED_STEPS):
            gradients = self.gradients_alone()
            with self.local():
                for parameter, gradient in zip(self.parameters(), gradients, strict=True):
                    parameter.grad = gradient
                self._update()
                expected = self._weights()
            self.synchronized_backward()
            self._update()
        found = self._weights()
        changes = ([new - old for new, old in zip(weights, before, strict=True)] for weights in (found, expected))
        return largest_error(*changes)

    def _weights(self) -> list[Tensor]:
        """The weights that are trained, each in its whole shape."""
        if isinstance(self.synchronizer, OwnWrapper):
            return self.synchronizer.whole_weights()
        return [parameter.detach() for parameter in self.parameters()]

    def gradients_alone(self) -> list[Tensor]:
        """Each parameter's gradient, averaged over the whole batch by this process without communication."""
        with self.local():
            self.backward_alone()
            gradients = [gradient_of(parameter).div_(self.slices) for parameter in self.parameters()]
            self.forget_gradients()
        return gradients

    def backward_alone(self, sequences: int | None = None) -> None:
        """Add up the gradients of all slices in this process; within `local`.

        It takes one slice after the other, because the whole batch at once may not fit in memory. sequences: how many
        of each slice, if not all.
        """
        for one in range(self.slices):
            self._take_slice(one, sequences)
            self._unscaled_backward(one)
        self._take_slice(self.slice)

    def synchronized_backward(self, sequences: int | None = None) -> None:
        """Compute the synchronized gradients of this rank's slice, or of so many sequences of it."""
        self.forget_gradients()
        self._take_slice(self.slice, sequences)
        self._unscaled_backward(self.slice)
        self._take_slice(self.slice)
        self.synchronizer.finish()

    def step(self, synchronized: bool) -> Iteration:
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

    def trace(self) -> Communication:
        """Trace one synchronized step for its communication."""
        self.align()

        def run() -> None:
            for phase in self.phases():
                phase.run()
            synchronize(self.config.device_type)

        found = trace_communication(self.config.device_type, run)
        self.forget_gradients()
        return found

    def weights_digest(self) -> WeightsDigest:
        """Sum and sum of squares of all weights, in float64."""
        total = torch.zeros(2, dtype=torch.float64, device=self.config.device_type)
        for parameter in self.training.model.parameters():
            wide = gathered(parameter.detach()).double()
            total += torch.stack((wide.sum(), wide.square().sum()))
        return WeightsDigest(*total.tolist())

    def reset_peak_memory(self) -> None:
        """Reset the peak of allocated memory, if PyTorch counts it.

        There is no step without synchronization any more after this if the wrapper or the optimizer is the user's.
        """
        self.alone = None  # training does not hold it
        reset_peak(self.config.device_type)

    def memory(self) -> RankMemory:
        """Memory of this rank since `reset_peak_memory`."""
        return RankMemory(
            peak_allocated=peak_allocated(self.config.device_type),
            optimizer_state=state_bytes(self.training.optimizer),
        )

    @contextmanager
    def local(self) -> Iterator[None]:
        """A context in which this rank neither sends anything nor waits for another rank."""
        training, synchronizer, optimizer = self.training, self.synchronizer, self.training.optimizer
        if self.alone:
            self.training, self.synchronizer = self.alone, NoSynchronizer(self.alone.model)
        else:
            self.training.optimizer = own_optimizer(optimizer)
        try:
            with self.synchronizer.local():
                yield
        finally:
            self.training, self.synchronizer = training, synchronizer
            self.training.optimizer = optimizer

    def _take_slice(self, index: int, sequences: int | None = None) -> None:
        self.training.inputs, self.training.targets = (whole[index][:sequences] for whole in self.batches)

    def _update(self) -> None:
        """Update the weights by the gradients, and forget these."""
        assert self.training.optimizer is not None, "the mode has an optimizer"
        self.training.optimizer.step()
        self.forget_gradients()

    def _unscaled_backward(self, index: int) -> None:
        """Compute the gradients of a slice, with the same dropout in whichever process does."""
        device = self.config.device_type
        generator = torch.default_generator if device == "cpu" else device_module(device)
        generator.manual_seed(index)
        last = self.config.accumulate - 1
        for micro in range(last + 1):
            with self.synchronizer.hold() if micro < last else nullcontext():
                self.training.forward(micro)
                self.training.mean_loss().backward()

    def _hold(self, run: Callable[[], object]) -> None:
        with self.synchronizer.hold():
            run()

    def forget_gradients(self) -> None:
        """Release the graph and the gradients."""
        self.forget_graph()
        self.training.model.zero_grad(set_to_none=True)

    def forget_graph(self) -> None:
        """Release the graph, as a training loop does when its variables go out of scope."""
        self.training.drop()


def is_own(config: TrialConfig) -> bool:
    """Whether the wrapper or the optimizer is the user's, so that what it computes is compared before it is timed."""
    return is_reference(config.ddp) or is_reference(config.optimizer)


def _bytes_of(tensor: Tensor) -> NDArray[np.uint8]:
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().copy()
