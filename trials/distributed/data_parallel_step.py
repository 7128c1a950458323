"""One rank's part in data-parallel training: its slice of the batch, and a step with or without synchronisation."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer

from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.distributed.comm_trace import Communication, trace_communication
from lmsweep.trials.distributed.gradient_sync import SYNCHRONIZERS, Synchronizer, gradient_of
from lmsweep.trials.distributed.process_group import Mean
from lmsweep.trials.machine.telemetry import Watch, doubts
from lmsweep.trials.model.precision import MathMode
from lmsweep.trials.model.training_step import LEARNING_RATE, TrainingStep
from lmsweep.trials.model.transformer import Transformer
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Iteration, Phase, clock_for, synchronize, time_iteration

SYNCHRONIZATION = "synchronization"
"""The phase between backward and the optimizer."""


class DataParallelStep:
    """What each rank does when rank 0 asks for it (see `lmsweep.trials.distributed.coordinator`). All ranks must do the
    same at the same time.
    """

    training: TrainingStep
    synchronizer: Synchronizer
    _watch: Watch

    def __init__(self, config: TrialConfig, math_mode: MathMode) -> None:
        self.config = config
        self.math_mode = math_mode
        self.clock = clock_for(config.device_type)
        self._token = torch.zeros(1, device=config.device_type)
        self._vector: Tensor | None = None

    def time_all_reduce(self) -> float:
        """Seconds that an all-reduce of as many numbers as there are gradients takes when nothing else goes on."""
        if self._vector is None:
            kind = self.math_mode.parameter_dtype
            self._vector = torch.randn(gradient_count(self.config), device=self.config.device_type, dtype=kind)
        mean, vector = Mean(), self._vector
        self._align()
        phase = Phase(name="all_reduce", run=lambda: mean.start(vector).wait())
        return time_iteration([phase], self.clock).step

    def build(self) -> None:
        """Makes the model, equal on all ranks, the whole batch, of which this rank keeps its slice, and the variant."""
        self._vector = None
        config, rank = self.config, dist.get_rank()
        self.training = TrainingStep(config, self.math_mode)
        for parameter in self.training.model.parameters():
            dist.broadcast(parameter.detach(), src=0)
        shape = (dist.get_world_size(), config.batch_size, config.context_length)
        self.batches = [torch.randint(config.vocab_size, shape, device=config.device_type) for _ in "xy"]
        for whole in self.batches:
            dist.broadcast(whole, src=0)
        self._take_slice(rank)
        model = self.training.model
        self.synchronizer = SYNCHRONIZERS[config.ddp](model, config.bucket_bytes)
        if config.ddp == "zero1":
            self.training.optimizer = sharded_optimizer(model, config)
        self.training.model = cast(Transformer, self.synchronizer.model)

    def gradient_error(self) -> float:
        """How far synchronised gradients are from those of one process that goes through the whole batch, slice by
        slice: the largest norm of a parameter's difference, relative to the norm of its gradient.
        """
        parameters = list(self.training.model.parameters())
        expected = self.gradients_alone()
        self._forget_gradients()
        self._unscaled_backward()
        self.synchronizer.finish()
        errors = [
            relative_error(gradient_of(parameter), wanted)
            for parameter, wanted in zip(parameters, expected, strict=True)
        ]
        self._forget_gradients()
        return torch.stack(errors).nan_to_num(nan=torch.inf).max().item()

    def gradients_alone(self) -> list[Tensor]:
        """The mean over the whole batch of each parameter's gradient, from this process by itself, slice by slice: the
        whole batch at once may not fit.
        """
        with self.synchronizer.local():
            for rank in range(dist.get_world_size()):
                self._take_slice(rank)
                self._unscaled_backward()
        self._take_slice(dist.get_rank())
        return [gradient_of(parameter).div_(dist.get_world_size()) for parameter in self.training.model.parameters()]

    def step(self, synchronized: bool) -> Iteration:
        """One step, begun by all ranks at the same time; forward, backward, synchronization, optimizer."""
        self._align()
        with nullcontext() if synchronized else self._local():
            iteration = time_iteration(self.phases(), self.clock)
        self._forget_gradients()
        return iteration

    def phases(self) -> list[Phase]:
        """The phases of one step in this configuration's mode, in order."""
        phases = list(self.training.phases())
        phases.insert(2, Phase(name=SYNCHRONIZATION, run=self.synchronizer.finish))
        return phases

    def trace(self) -> Communication:
        """What one synchronised step communicates."""
        self._align()

        def run() -> None:
            for phase in self.phases():
                phase.run()
            synchronize(self.config.device_type)

        found = trace_communication(self.config.device_type, run)
        self._forget_gradients()
        return found

    def weights_digest(self) -> tuple[float, float]:
        """Two numbers that differ between ranks whose weights do: their sum and the sum of their squares."""
        total = torch.zeros(2, dtype=torch.float64, device=self.config.device_type)
        for parameter in self.training.model.parameters():
            wide = parameter.detach().double()
            total += torch.stack((wide.sum(), wide.square().sum()))
        first, second = total.tolist()
        return first, second

    def watch(self) -> None:
        """Begins to watch this rank's GPU."""
        self._watch = Watch(self.config.device_type)
        self._watch.wait()

    def doubts(self, since_ago: float, until_ago: float) -> tuple[Flag, ...]:
        """Ends the watch; what it says against what was measured from the first of these numbers of seconds ago to the
        second. Not points of time: machines have clocks of their own, and a message is faster than two readings.
        """
        now = time.monotonic()
        self._watch.close()
        return doubts(self._watch, since=now - since_ago, until=now - until_ago)

    def forget_peak(self) -> None:
        """Begins to look for the peak of memory anew."""
        if self.config.device_type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def memory(self) -> tuple[int | None, int]:
        """Bytes: the peak of what PyTorch's allocator has handed out (None where it does not count), and the
        optimizer's state.
        """
        on_cuda = self.config.device_type == "cuda"
        return torch.cuda.max_memory_allocated() if on_cuda else None, state_bytes(self.training.optimizer)

    @contextmanager
    def _local(self) -> Iterator[None]:
        """Inside, this rank sends nothing and waits for nobody."""
        optimizer = self.training.optimizer
        if isinstance(optimizer, ZeroRedundancyOptimizer):
            self.training.optimizer = optimizer.optim  # that of its own share alone
        try:
            with self.synchronizer.local():
                yield
        finally:
            self.training.optimizer = optimizer

    def _take_slice(self, rank: int) -> None:
        self.training.inputs, self.training.targets = (whole[rank] for whole in self.batches)

    def _unscaled_backward(self) -> None:
        self.training.forward()
        assert self.training.loss is not None, "it is what forward leaves"
        self.training.loss.backward()

    def _forget_gradients(self) -> None:
        self.training.drop()
        self.training.model.zero_grad(set_to_none=True)

    def _align(self) -> None:
        """Waits until every rank's device is idle."""
        dist.all_reduce(self._token)
        synchronize(self.config.device_type)


def gradient_count(config: TrialConfig) -> int:
    """How many numbers the gradients of the model are."""
    size = config.size
    return int(
        parameter_count(d_model=size.d_model, d_ff=size.d_ff, num_layers=size.num_layers, vocab_size=config.vocab_size)
    )


def sharded_optimizer(model: Transformer, config: TrialConfig) -> ZeroRedundancyOptimizer:
    """AdamW whose state is divided: each rank updates its share of the weights and broadcasts them in one piece."""
    return ZeroRedundancyOptimizer(
        model.parameters(),
        optimizer_class=torch.optim.AdamW,
        parameters_as_bucket_view=True,
        lr=LEARNING_RATE,
        fused=config.optimizer == "adamw_fused",
        foreach=config.optimizer == "adamw_foreach",
    )


def state_bytes(optimizer: torch.optim.Optimizer | None) -> int:
    """Bytes of the optimizer's state in this process; 0 without an optimizer or before its first step."""
    if optimizer is None:
        return 0
    mine = optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer
    return sum(value.nbytes for state in mine.state.values() for value in state.values() if torch.is_tensor(value))


def relative_error(tensor: Tensor, expected: Tensor) -> Tensor:
    """The norm of the difference as a share of the expected norm; a difference from nothing is infinite."""
    difference = torch.linalg.vector_norm(tensor - expected, dtype=torch.float32)
    norm = torch.linalg.vector_norm(expected, dtype=torch.float32)
    return torch.where(difference == 0, 0.0, difference / norm)
