"""One rank's share of data-parallel training: its slice of the batch, and a step with or without synchronization."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from lmsweep.trials.analytic.formulas import parameter_count
from lmsweep.trials.distributed.comm_trace import Communication, trace_communication
from lmsweep.trials.distributed.gradient_buckets import gradient_of
from lmsweep.trials.distributed.gradient_sync import SYNCHRONIZERS, Synchronizer
from lmsweep.trials.distributed.process_group import Mean
from lmsweep.trials.distributed.sharded_optimizer import own_optimizer, sharded_optimizer, state_bytes
from lmsweep.trials.machine.telemetry import Watch, doubts
from lmsweep.trials.model.precision import MathMode
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Iteration, Phase, clock_for, synchronize, time_iteration

SYNCHRONIZATION = "synchronization"
"""Name of the phase between backward and the optimizer."""


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
    optimizer_state: int
    """Bytes of the optimizer's state."""


class DataParallelStep:
    """A data-parallel training step in one rank, driven by the orders of rank 0 (`lmsweep.trials.distributed.orders`).

    Every method contains collectives or is timed against them, so all ranks must call it at the same time.
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
        """Seconds of an isolated all-reduce of as many elements as the model has gradients."""
        if self._vector is None:
            kind = self.math_mode.parameter_dtype
            self._vector = torch.randn(gradient_count(self.config), device=self.config.device_type, dtype=kind)
        mean, vector = Mean(), self._vector
        self._align()
        phase = Phase(name="all_reduce", run=lambda: mean.start(vector).wait())
        return time_iteration([phase], self.clock).step

    def build(self) -> None:
        """Build the model and the whole batch, both equal on all ranks; take this rank's slice; attach the variant."""
        self._vector = None
        config, rank = self.config, dist.get_rank()
        self.training = TrainingStep(config, self.math_mode)
        for parameter in self.training.model.parameters():
            dist.broadcast(parameter.detach(), src=0)
        shape = (dist.get_world_size(), config.batch_size, config.context_length)  # (ranks, batch, tokens)
        self.batches = [torch.randint(config.vocab_size, shape, device=config.device_type) for _ in "xy"]
        for whole in self.batches:
            dist.broadcast(whole, src=0)
        self._take_slice(rank)
        model = self.training.model
        self.synchronizer = SYNCHRONIZERS[config.ddp](model, config.bucket_bytes)
        if config.ddp == "zero1":
            self.training.optimizer = sharded_optimizer(model, config)
        self.training.model = self.synchronizer.model

    def gradient_error(self) -> float:
        """Largest relative error, over parameters, of synchronized gradients.

        The reference is `gradients_alone`: one process that goes through the whole batch. Relative error: norm of the
        difference / norm of the reference.
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
        """Each parameter's gradient, averaged over the whole batch by this process without communication.

        It takes one slice after the other, because the whole batch at once may not fit in memory.
        """
        with self.synchronizer.local():
            for rank in range(dist.get_world_size()):
                self._take_slice(rank)
                self._unscaled_backward()
        self._take_slice(dist.get_rank())
        return [gradient_of(parameter).div_(dist.get_world_size()) for parameter in self.training.model.parameters()]

    def step(self, synchronized: bool) -> Iteration:
        """Time one step that all ranks start together: forward, backward, synchronization, optimizer."""
        self._align()
        with nullcontext() if synchronized else self._local():
            iteration = time_iteration(self.phases(), self.clock)
        self._forget_gradients()
        return iteration

    def phases(self) -> list[Phase]:
        """The phases of one step in the configuration's mode, in order."""
        phases = list(self.training.phases())
        phases.insert(2, Phase(name=SYNCHRONIZATION, run=self.synchronizer.finish))
        return phases

    def trace(self) -> Communication:
        """Trace one synchronized step for its communication."""
        self._align()

        def run() -> None:
            for phase in self.phases():
                phase.run()
            synchronize(self.config.device_type)

        found = trace_communication(self.config.device_type, run)
        self._forget_gradients()
        return found

    def weights_digest(self) -> WeightsDigest:
        """Sum and sum of squares of all weights, in float64."""
        total = torch.zeros(2, dtype=torch.float64, device=self.config.device_type)
        for parameter in self.training.model.parameters():
            wide = parameter.detach().double()
            total += torch.stack((wide.sum(), wide.square().sum()))
        return WeightsDigest(*total.tolist())

    def watch(self) -> None:
        """Start sampling the telemetry of this rank's GPU."""
        self._watch = Watch(self.config.device_type)
        self._watch.wait()

    def doubts(self, since_ago: float, until_ago: float) -> tuple[Flag, ...]:
        """Stop sampling telemetry; return the flags that it raises for the interval between these many seconds ago."""
        now = time.monotonic()
        self._watch.close()
        return doubts(self._watch, since=now - since_ago, until=now - until_ago)

    def reset_peak_memory(self) -> None:
        """Reset the peak of allocated memory; on CUDA only, where PyTorch counts it."""
        if self.config.device_type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def memory(self) -> RankMemory:
        """Memory of this rank since `reset_peak_memory`."""
        on_cuda = self.config.device_type == "cuda"
        return RankMemory(
            peak_allocated=torch.cuda.max_memory_allocated() if on_cuda else None,
            optimizer_state=state_bytes(self.training.optimizer),
        )

    @contextmanager
    def _local(self) -> Iterator[None]:
        """A context in which this rank neither sends anything nor waits for another rank."""
        optimizer = self.training.optimizer
        self.training.optimizer = own_optimizer(optimizer)
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
        """Wait until the devices of all ranks are idle."""
        dist.all_reduce(self._token)
        synchronize(self.config.device_type)


def gradient_count(config: TrialConfig) -> int:
    """Elements of all gradients of the model."""
    return int(parameter_count(**config.size.terms, vocab_size=config.vocab_size))


def relative_error(tensor: Tensor, expected: Tensor) -> Tensor:
    """||tensor - expected|| / ||expected|| in float32, a scalar; 0 if both are zero, inf if only `expected` is."""
    difference = torch.linalg.vector_norm(tensor - expected, dtype=torch.float32)
    norm = torch.linalg.vector_norm(expected, dtype=torch.float32)
    return torch.where(difference == 0, 0.0, difference / norm)
