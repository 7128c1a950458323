"""Memory: what a training iteration holds, when, and for what."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.memory.cuda_history import TracedHistory
from lmsweep.trials.memory.dispatch_history import TrackedHistory
from lmsweep.trials.memory.labels import activations_noted, lasting_labels
from lmsweep.trials.memory.ledger import END, Label
from lmsweep.trials.memory.meter import CudaMeter, Meter, TensorMeter, resident_bytes
from lmsweep.trials.memory.rows import Readings, breakdown_rows, history_rows, resident_rows, unknown_rows, value_rows
from lmsweep.trials.memory.storage_tracker import StorageTracker, storage_key
from lmsweep.trials.model.compiler import check_compiled
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.results.measurement import Yielded
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.timing.clock import synchronize

REPETITIONS = 3
"""Iterations in which memory is read; where what they asked for does not agree exactly they are flagged `unsteady`. The
last is recorded allocation by allocation as well.
"""

MOST_LEFT_OUT = 20
"""Steps that a gradient scaler may leave out, halving its scale, before the optimizer makes its state."""

History = TrackedHistory | TracedHistory
Around = Callable[[str], AbstractContextManager[None]]
"""A context for each phase."""


def measure(bench: Workbench) -> Iterator[Yielded]:
    """Bytes in use before and after a model is built, at the boundaries and peaks of three iterations, and for what.

    What is compiled compiles, and the optimizer makes its state, before them.

    Raises UnsupportedError where this machine cannot run the combination, and RuntimeError where a model that should be
    compiled ran without a compiled graph.
    """
    config = bench.config
    bench.clear()  # what an earlier workload left would count
    resident_before = resident_bytes()
    tracked = not config.compiles and config.device_type != "cuda"
    tracker = StorageTracker(config.device_type) if tracked else None
    meter = CudaMeter() if config.device_type == "cuda" else TensorMeter(config.device_type, tracker)
    history = TrackedHistory(tracker) if tracker else TracedHistory() if _is_traced(config) else None
    with bench.quiet(), tracker or nullcontext():
        once = {("baseline", metric): held for metric, held in meter.now().items()}
        step = bench.step
        once |= {("init", metric): held for metric, held in meter.now().items()}
        with bench.account("compile" if config.compiles else "warmup"):
            _warm_up(step, meter, history)
        if config.compiles:
            check_compiled(cuda_graphs=step.uses_cuda_graphs)
        with bench.account("measured"):
            series = [iterate(step, meter, history) for _ in range(REPETITIONS - 1)]
            last = Recording(step, history)
            with last.whole():
                series.append(iterate(step, meter, history, last.around))
    yield from value_rows([once])
    yield from value_rows(series)
    yield from unknown_rows(config, [phase.name for phase in step.phases()])
    yield from resident_rows(resident_before, resident_bytes())
    course = history.finished().course() if history else None
    yield from breakdown_rows(config, series[-1], last.before_backward, last.kept, course)
    yield from history_rows(config, history, course)


def _warm_up(step: TrainingStep, meter: Meter, history: History | None) -> None:
    """Compiles, and has the optimizer make its state.

    On CUDA a second iteration finds that state there, as all after it do, and cuts the allocator's cache as they will;
    it is also the one that records CUDA graphs.
    """
    for _ in range(2 if step.config.device_type == "cuda" else 1):
        iterate(step, meter, history)
    for _ in range(MOST_LEFT_OUT):
        if step.optimizer is None or step.optimizer.state:
            return
        iterate(step, meter, history)


def iterate(step: TrainingStep, meter: Meter, history: History | None, around: Around | None = None) -> Readings:
    """One iteration: bytes in use at its boundaries and at most in each of its phases."""
    gc.collect()  # there is none inside
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
    """What is noted in the last iteration: which tensors there are at the end of each phase, and for what."""

    def __init__(self, step: TrainingStep, history: History | None) -> None:
        self._step = step
        self._history = history
        self._key = history.key if history else storage_key
        self.kept: dict[int, Label] = {}
        """What autograd keeps for backward."""
        self.before_backward: dict[int, Label] = {}
        """All that is there after forward and is known by name."""

    def whole(self) -> AbstractContextManager[None]:
        """Around the iteration."""
        return self._history.recording(lasting_labels(self._step, self._key)) if self._history else nullcontext()

    @contextmanager
    def around(self, phase: str) -> Iterator[None]:
        # CUDA graphs replay; there is nothing for autograd to keep anew.
        if phase == "forward" and not self._step.uses_cuda_graphs:
            with activations_noted(self._step, self._key) as self.kept:
                yield
            self.before_backward = self.kept | lasting_labels(self._step, self._key)
            labels = self.before_backward
        else:
            yield
            labels = lasting_labels(self._step, self._key)
        if self._history:
            self._history.leave(labels)


def _is_traced(config: TrialConfig) -> bool:
    return config.device_type == "cuda" and config.compile_mode == "default"
