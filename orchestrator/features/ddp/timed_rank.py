"""A rank of the workload `ddp`: a step that is timed, whose memory is watched, and that can be built again."""

import gc
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain

import torch

from lmsweep.orchestrator.features.ddp.checked.compared_step import ComparedStep, local_optimizer
from lmsweep.orchestrator.features.ddp.checked.coordinator import AlignedRank, Team
from lmsweep.orchestrator.features.ddp.memory_stages import Held, MemoryWatch, peak_allocated, reset_peak
from lmsweep.trials.bench.iterations import Series, Taken, take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.distributed.ranks.process_group import Mean
from lmsweep.trials.lengths.batches import batches
from lmsweep.trials.machine.gpu.accelerator import counts_memory, device_module
from lmsweep.trials.machine.gpu.telemetry import Watch, gpu_flags
from lmsweep.trials.model.adapted_layers import import_adapters
from lmsweep.trials.model.host_copies import part_of
from lmsweep.trials.model.optimizer import OptimizerOfCopies
from lmsweep.trials.model.precision_modes import MathMode
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Phase, time_iteration


def state_bytes(optimizer: torch.optim.Optimizer | None) -> int | None:
    """Bytes of the optimizer's state in this process; 0 without an optimizer or before its first step. If the user's
    optimizer wraps another, the state of that one counts as well. None if neither keeps state as PyTorch's optimizers
    do."""
    mine = local_optimizer(optimizer)
    if mine is None:
        return 0
    if isinstance(mine, OptimizerOfCopies):  # its state includes that of its parts, unless they are on the host
        holders = [mine] if mine.state else mine.parts
    else:
        holders = [mine, *(one for one in vars(mine).values() if isinstance(one, torch.optim.Optimizer))]
    sizes = [part_of(tensor).nbytes for one in holders for tensor in _state_tensors(one)]
    is_torchs = type(mine).__module__.startswith("torch.optim")
    return sum(sizes) if sizes or is_torchs else None


def _state_tensors(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    states = getattr(optimizer, "state", {}).values()  # a user's class may have none
    return [value for state in states for value in state.values() if torch.is_tensor(value)]


class WatchedRank(AlignedRank):
    """A rank that samples the telemetry of its own GPU."""

    gpu: Watch

    def watch(self) -> None:
        """Start sampling the telemetry of this rank's GPU."""
        self.gpu = Watch(self.device_type)
        self.gpu.wait()

    def end_watch(self, *, since_ago: float, until_ago: float) -> tuple[Flag, ...]:
        """Stop sampling; return the flags for an interval. Its ends are given as seconds before now, because the clocks
        of hosts differ."""
        now = time.monotonic()
        self.gpu.close()
        return gpu_flags(self.gpu, since=now - since_ago, until=now - until_ago)


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Memory of one rank, bytes."""

    peak_allocated: int | None
    """None on devices where PyTorch does not count what it allocates."""
    optimizer_state: int | None
    """None if the user's class keeps its state where it cannot be found."""


class TimedRank(WatchedRank, ComparedStep):
    """A rank whose steps are timed. Every method contains collectives or is timed against them, so all ranks must call
    it at the same time."""

    def __init__(self, config: TrialConfig, math_mode: MathMode) -> None:
        super().__init__(config, math_mode)
        self.memory_watch = None if config.compiles else MemoryWatch(config.device_type)
        """Sees what is allocated; not in compiled code."""
        self.after_init: Held | None = None
        """What this rank holds once everything is built; None if unknown."""

    def build_model(self) -> None:
        import_adapters(self.config)
        with self.memory_watch or nullcontext():
            super().build_model()
        if self.memory_watch and self.after_init is None:
            self.align()  # gloo's threads hold what they have sent until the next collective
            gc.collect()  # layers that adapters and TP replaced are reference cycles, and hold whole weights
            self.after_init = self.memory_watch.held(self.training)
        self.restart()

    def restart(self) -> None:
        """If batches differ by their lengths, begin with the first one again; each rank draws different ones."""
        if self.config.varies:
            self.training.draw_from(batches(self.config, self.slice, self.slices))

    def advance(self) -> None:
        """Take the next batch, if batches differ."""
        self.training.advance()

    def rebuild(self) -> None:
        """Build everything again after a failure has left sharded weights in an unknown state."""
        del self.training, self.synchronizer
        while gc.collect():  # until nothing is left: one pass frees hooks, and only the next what they refer to
            pass
        if counts_memory(self.config.device_type):
            device_module(self.config.device_type).empty_cache()
        self.build_model()

    def time_all_reduces(self, number: int) -> list[float]:
        """Seconds of isolated all-reduces of as many elements as the model has gradients."""
        kind = self.math_mode.parameter_dtype
        vector = torch.randn(self.gradient_count(), device=self.config.device_type, dtype=kind)
        mean = Mean()
        phase = Phase(name="all_reduce", run=lambda: mean.start(vector).wait())
        return [self._timed_alone(phase) for _ in range(number)]

    def _timed_alone(self, phase: Phase) -> float:
        self.align()
        return time_iteration([phase], self.clock).step

    def reset_peak_memory(self) -> None:
        """Reset the peak of allocated memory. With the user's code, no local step can run after this."""
        self.alone = None  # training would not hold this second model
        reset_peak(self.config.device_type)

    def memory(self) -> RankMemory:
        """Memory of this rank since `reset_peak_memory`."""
        peak, state = peak_allocated(self.config.device_type), state_bytes(self.training.optimizer)
        return RankMemory(peak_allocated=peak, optimizer_state=state)


def take_series_of_ranks(
    bench: Workbench,
    team: Team[WatchedRank],
    run: Callable[[], Taken],
    seconds: Callable[[Taken], float],
    *,
    before_measuring: Callable[[], object] = lambda: None,
) -> Series[Taken]:
    """Run a series of iterations while all ranks watch their GPUs; its flags include those of the GPUs."""
    team.all(WatchedRank.watch)
    series = take_series(bench, run, seconds, before_measuring=before_measuring)
    now = time.monotonic()
    doubtful = team.all(WatchedRank.end_watch, since_ago=now - series.since, until_ago=now - series.until)
    return replace(series, flags=tuple(dict.fromkeys(chain(series.flags, *doubtful))))
