"""The workload `loss`: time and memory of the output head and the loss alone, forward and backward."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from statistics import median

import torch
from torch import Tensor

from lmsweep.trials.bench.iterations import take_queued_series, time_rows
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.telemetry import Watch, gpu_flags
from lmsweep.trials.memory.meter import meter_for
from lmsweep.trials.memory.rows import unknown_rows, value_rows
from lmsweep.trials.model.compiler import check_compiled
from lmsweep.trials.model.loss_functions import loss_for
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.results.measurement import Yielded
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Phase
from lmsweep.trials.timing.queued_timer import QueuedTimer
from lmsweep.trials.timing.validity_flags import above_peak
from lmsweep.trials.workloads.memory import REPETITIONS, iterate


class LossStep:
    """Forward and backward through the product with the head's weight and the loss, without autocast. Hidden states are
    (batch, tokens, d_model), the weight is (vocabulary, d_model). `precision` sets their type."""

    def __init__(self, config: TrialConfig, math_mode: MathMode) -> None:
        self.config = config
        self._loss = loss_for(config)
        dtype, device = math_mode.operand_dtype, config.device_type
        shape = (config.batch_size, config.context_length)
        self.hidden = torch.randn(*shape, config.d_model, dtype=dtype, device=device).requires_grad_()
        weight = torch.randn(config.vocab_size, config.d_model, dtype=dtype, device=device)
        weight /= config.d_model**0.5  # logits of variance 1, as in a model that has just been initialised
        self.weight = weight.requires_grad_()
        self.targets = torch.randint(config.vocab_size, shape, device=device)
        self.loss: Tensor | None = None

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(name="forward", run=self.forward), Phase(name="backward", run=self.backward))

    def forward(self) -> None:
        """Compute the loss; some losses compute the gradients, too."""
        if self._loss.takes_hidden:
            self.loss = self._loss.function(self.hidden, self.weight, self.targets)
        else:
            self.loss = self._loss.function(self.hidden @ self.weight.T, self.targets)

    def backward(self) -> None:
        assert self.loss is not None, "backward follows forward"
        self.loss.backward()

    def drop(self) -> None:
        self.loss = self.hidden.grad = self.weight.grad = None


def measure(bench: Workbench) -> Iterator[Yielded]:
    """Time forward and backward, then read memory. Raises RuntimeError if a compiled loss compiled nothing."""
    config = bench.config
    bench.clear()  # a model of an earlier workload would count as the loss's memory
    with Watch(config.device_type) as watch, bench.quiet():
        step = LossStep(config, bench.math_mode)
        timer = QueuedTimer(
            step.phases(), config.device_type, warmup=config.warmup_steps, measured=config.measure_steps, drop=step.drop
        )
        with bench.account("compile"):
            timer.from_idle()  # some packages compile at their first call, too
        if config.compiles:
            check_compiled(cuda_graphs=False)
        series = take_queued_series(bench, timer, watch)
    # One product in forward, two in backward, each with a multiplication and an addition: 3 * 2.
    flops = 6 * config.batch_size * config.context_length * config.d_model * config.vocab_size
    common = (*series.flags, *gpu_flags(watch, since=series.since, until=series.until))

    def flags(name: str, seconds: Sequence[float]) -> tuple[Flag, ...]:
        # Only a step has known FLOPs: some losses compute the gradients in forward.
        too_fast = name == "step" and above_peak(flops, median(seconds), bench.datasheet, config)
        return (*common, Flag.PHYSICS_VIOLATION) if too_fast else common

    yield from time_rows(series, ("forward", "backward", "step"), flags)
    del step, timer  # `_memory` makes a step of its own: a tracker counts only what is made under it
    yield from _memory(bench)


def _memory(bench: Workbench) -> Iterator[Yielded]:
    meter = meter_for(bench.config)
    with bench.account("measured"), bench.quiet(), meter.tracker or nullcontext():
        step = LossStep(bench.config, bench.math_mode)
        iterate(step, meter, None)  # not counted: libraries allocate their workspaces
        series = [iterate(step, meter, None) for _ in range(REPETITIONS)]
    yield from value_rows(series)
    yield from unknown_rows(bench.config, [phase.name for phase in step.phases()])
