"""The workload `memory`: memory of a training iteration by phase and category."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from lmsweep.trials.bench.varied_steps import BatchesTaken
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.accelerator import counts_memory, synchronize
from lmsweep.trials.memory.allocation_history import TracedHistory, TrackedHistory
from lmsweep.trials.memory.allocation_log import END, Label
from lmsweep.trials.memory.labels import activations_noted, lasting_labels
from lmsweep.trials.memory.meter import Meter, meter_for, resident_bytes
from lmsweep.trials.memory.rows import (
    Readings,
    breakdown_rows,
    history_rows,
    resident_rows,
    residual_rows,
    run_rows,
    unknown_rows,
    value_rows,
)
from lmsweep.trials.memory.source_lines import Sources
from lmsweep.trials.memory.storage_tracker import storage_key
from lmsweep.trials.memory.usage import Usage
from lmsweep.trials.model.adapted_layers import import_adapters
from lmsweep.trials.model.compiler import check_compiled
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.users.users_step import FUNCTION_PHASE, UsersStep
from lmsweep.trials.results.measurement import Yielded
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import Phase

REPETITIONS = 3
"""Iterations that read memory; different readings set `unsteady`. The last also records every allocation."""

MOST_SKIPPED = 20
"""Steps that a gradient scaler may skip before the first update. Each halves its scale, which begins at 2^16."""

History = TrackedHistory | TracedHistory  # of the storages that a mode of PyTorch sees, or of CUDA's allocator
Around = Callable[[str], AbstractContextManager[None]]
"""Name of a phase -> a context around it."""


def measure(bench: Workbench) -> Iterator[Yielded]:
    """Yield bytes after each phase and at its peak, by category. Raises RuntimeError if nothing was compiled."""
    config = bench.config
    is_recorded = config.step is None and not config.varies
    if config.step is None:
        bench.clear()  # leftovers of an earlier workload would count
    import_adapters(config)
    resident_before = resident_bytes()
    meter = meter_for(config)
    sources = Sources.of(bench.code, is_hugging_face=config.is_hugging_face)
    history: History | None = None
    if is_recorded and meter.tracker:
        history = TrackedHistory(meter.tracker, sources)
    elif is_recorded and config.device_type == "cuda" and not config.records_cuda_graphs:
        history = TracedHistory(sources)
    with bench.quiet(), meter.tracker or nullcontext():
        once = {("baseline", metric): held for metric, held in meter.now().items()}
        step = bench.iteration  # which builds the model
        once |= {("init", metric): held for metric, held in meter.now().items()}
        if isinstance(step, UsersStep):
            series = _users_steps(bench, step, meter)
        elif config.varies:
            series = _varied_steps(bench, step, meter)
        else:  # is_recorded
            last = Recording(step, history, sources)
            series = _recorded_steps(bench, step, meter, last)
    yield from value_rows([once])
    yield from value_rows(series, alike=not config.varies)
    yield from unknown_rows(config, [phase.name for phase in step.phases() if phase.name != FUNCTION_PHASE])
    if config.varies:
        yield from run_rows(config, series)
    yield from resident_rows(resident_before, resident_bytes())
    if is_recorded:
        usage = Usage.of(history.finished()) if history else None
        yield from breakdown_rows(config, len(bench.step.blocks), series[-1], last.before_backward, last.kept, usage)
        yield from residual_rows(last.kept)
        yield from history_rows(config, history, usage)


def _users_steps(bench: Workbench, step: UsersStep, meter: Meter) -> list[Readings]:
    with bench.account("warmup"):
        for _ in range(REPETITIONS):
            iterate(step, meter, None)
    with bench.account("measured"):
        return [iterate(step, meter, None) for _ in range(REPETITIONS)]


def _varied_steps(bench: Workbench, step: TrainingStep, meter: Meter) -> list[Readings]:
    varied, series = BatchesTaken(step), []
    with bench.account("measured"):
        for _ in range(bench.config.batches):
            with varied.stepping():
                series.append(iterate(step, meter, None))
    if bench.config.compiles:
        check_compiled(cuda_graphs=step.uses_cuda_graphs)
    return series


def _recorded_steps(bench: Workbench, step: TrainingStep, meter: Meter, last: "Recording") -> list[Readings]:
    """Read REPETITIONS iterations, and record every allocation of the last."""
    with bench.account("compile" if bench.config.compiles else "warmup"):
        _warm_up(step, meter, last.history)
    if bench.config.compiles:
        check_compiled(cuda_graphs=step.uses_cuda_graphs)
    with bench.account("measured"):
        series = [iterate(step, meter, last.history) for _ in range(REPETITIONS - 1)]
        with last.whole():
            return [*series, iterate(step, meter, last.history, last.around)]


def _warm_up(step: TrainingStep, meter: Meter, history: History | None) -> None:
    # The first makes the optimizer's state; the second fills an allocator's cache beside it.
    for _ in range(2 if counts_memory(step.config.device_type) else 1):
        iterate(step, meter, history)
    for _ in range(MOST_SKIPPED):  # until gradients are finite and the optimizer makes its state, if it has one
        if step.optimizer is None or step.optimizer.state or not step.scaler.is_enabled():
            return
        iterate(step, meter, history)


class Step(Protocol):
    config: TrialConfig

    def phases(self) -> Sequence[Phase]: ...

    def drop(self) -> None: ...


def iterate(step: Step, meter: Meter, history: History | None, around: Around | None = None) -> Readings:
    """Run one iteration; return the bytes in use between its phases and at the peak of each."""
    gc.collect()  # so that no collection happens inside the iteration
    readings: Readings = {}
    peaks: dict[str, int] = {}
    for phase in step.phases():
        meter.reset_peak()
        if history:
            history.enter(phase.name)
        with around(phase.name) if around else nullcontext():
            phase.run()
        synchronize(step.config.device_type)
        for metric, held in meter.peak().items():
            readings[phase.name, f"peak_{metric}"] = held
            peaks[metric] = max(held, peaks.get(metric, 0))
        if phase.name == "forward":
            readings |= {("before_backward", metric): held for metric, held in meter.now().items()}
    if history:
        history.enter(END)
    step.drop()
    synchronize(step.config.device_type)
    readings |= {("step_end", metric): held for metric, held in meter.now().items()}
    return readings | {("step", f"peak_{metric}"): held for metric, held in peaks.items()}


class Recording:
    """Labels the storages in use in the last iteration, at the end of each phase. By the key of a storage, `kept` has
    what autograd saved in forward, and `before_backward` also weights, gradients, optimizer state and inputs."""

    def __init__(self, step: TrainingStep, history: History | None, sources: Sources) -> None:
        self._step = step
        self._sources = sources
        self.history = history
        self._key = history.key if history else storage_key
        self.kept: dict[int, Label] = {}
        self.before_backward: dict[int, Label] = {}

    def whole(self) -> AbstractContextManager[None]:
        return self.history.recording(lasting_labels(self._step, self._key)) if self.history else nullcontext()

    @contextmanager
    def around(self, phase: str) -> Iterator[None]:
        # When CUDA graphs replay, autograd saves no new tensors.
        if phase == "forward" and not self._step.uses_cuda_graphs:
            with activations_noted(self._step, self._key, self._sources) as self.kept:
                yield
            labels = self.before_backward = self.kept | lasting_labels(self._step, self._key)
        else:
            yield
            labels = lasting_labels(self._step, self._key)
        if self.history:
            self.history.leave(labels)
