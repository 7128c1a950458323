"""The workload `profile`: the kernels of a step, their time, and the part of the model that each belongs to."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import Any

from torch import nn

from lmsweep.orchestrator.features.explain.attribution import (
    STEP,
    Piece,
    device_pieces,
    host_pieces,
    matched,
    surroundings,
)
from lmsweep.orchestrator.features.explain.kernel_table import kernel_rows, operator_rows, range_rows, step_starts
from lmsweep.orchestrator.features.explain.nsys import profile_with_nsys
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.accelerator import activity
from lmsweep.trials.model.annotations import Range
from lmsweep.trials.model.training_step import TrainingStep
from lmsweep.trials.model.users.users_model import CHECKPOINTED
from lmsweep.trials.profiling.events import DeviceEvent, Trace
from lmsweep.trials.profiling.torch_trace import take_trace, trace_file
from lmsweep.trials.results.measurement import Yielded
from lmsweep.trials.spec.config import UnsupportedError
from lmsweep.trials.spec.ways.compilations import Compilation
from lmsweep.trials.timing.clock import clock_for, time_iteration

PROFILED_STEPS = 3
"""Steps that are profiled, if `timing` has traced none in this process. If it has, one step is profiled for operators
and ranges, and takes the times of its kernels from the traced steps."""
WARMUP_ITERATIONS = 3


def measure(bench: Workbench) -> Iterator[Yielded]:
    """Yield the time of each range, its kernels, operators and the trace; no wall time: a profiler slows the host."""
    device = bench.config.device_type
    if device != "cpu" and activity(device) is None:
        raise UnsupportedError(f"PyTorch's profiler does not support device {device}")
    traced: list[list[DeviceEvent]] = []
    with bench.quiet():
        if bench.config.profiler == "nsys":
            bench.clear()  # the steps run in another process, which needs the device's memory
            with bench.account("measured"):
                trace = profile_with_nsys(bench.config)
        else:
            traced = bench.traced
            run_steps = ready_steps(bench)
            with bench.account("measured"), modules_ranged(bench.step):
                trace = take_trace(run_steps, device, with_file=bench.keeps_traces)
        with bench.account("measured"):
            rows = list(profile_rows(trace, traced, any_range=bool(bench.config.references)))
    yield from rows


def ready_steps(bench: Workbench) -> Callable[[], None]:
    """Warm up, unless `timing` has; return a function that runs the steps to profile, each inside a range."""
    phases = bench.step.phases()
    clock = clock_for(bench.config.device_type)

    def run() -> None:
        with Range(STEP):
            time_iteration(phases, clock)
        bench.step.drop()

    def run_steps() -> None:
        for _ in range(1 if bench.traced else PROFILED_STEPS):
            run()

    if bench.traced:
        return run_steps
    with bench.account("compile" if bench.config.compiles else "warmup"):
        run()
    is_warm = bench.seconds["measured"] > 0  # by another workload in this process
    if not is_warm:
        with bench.account("warmup"):
            for _ in range(WARMUP_ITERATIONS):
                run()
    return run_steps


def profile_rows(trace: Trace, traced: list[list[DeviceEvent]], *, any_range: bool) -> Iterator[Yielded]:
    """Yield the operators, the trace, the ranges and the kernels.

    traced: the kernels of each step that `timing` traced, which recording operators did not slow down. The steps that
    ran the same kernels as the profiled one give the times: all of them those of ranges, the one or two of median time
    those in the table of kernels.
    """
    around = surroundings(trace.hosts, any_range=any_range)
    starts = step_starts(trace.hosts, around)
    if trace.file:
        yield from operator_rows(trace.hosts, around, trace.devices, len(starts))
        yield trace_file(trace.file_name, trace.file)
    if trace.devices is None:
        pieces = host_pieces(trace.hosts, around)
    else:
        pieces = device_pieces(trace.hosts, around, trace.devices)  # in the order of these events, as is `same`
        steps = [_timed_by(pieces, same) for step in traced if (same := matched(trace.devices, step))]
        if steps:
            yield from range_rows(list(chain(*steps)), [min(piece.start for piece in step) for step in steps])
            steps.sort(key=lambda step: sum(piece.duration for piece in step))
            middle = steps[(len(steps) - 1) // 2 : len(steps) // 2 + 1]  # of 3 the second, of 4 the second and third
            yield from kernel_rows(chain(*middle), len(middle))
            return
    yield from range_rows(pieces, starts)
    yield from kernel_rows(pieces, len(starts))


def _timed_by(pieces: list[Piece], kernels: list[DeviceEvent]) -> list[Piece]:
    """Return the pieces with the times of the same kernels in another step."""
    pairs = zip(pieces, kernels, strict=True)
    return [piece._replace(start=one.start, duration=one.end - one.start) for piece, one in pairs]


@contextmanager
def modules_ranged(step: TrainingStep) -> Iterator[None]:
    """A context in which the modules of the user's model run inside ranges; lmsweep's model has its own."""
    open_ranges: list[Range] = []

    def enter(name: str, module: nn.Module, inputs: Any) -> None:
        open_ranges.append(Range(name))
        open_ranges[-1].__enter__()

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        open_ranges.pop().__exit__(None, None, None)

    with ExitStack() as hooks:
        if step.config.model_code is not None:
            for name, module in ranged_modules(step.model, step.blocks, step.config.compilation).items():
                hooks.enter_context(module.register_forward_pre_hook(partial(enter, name), prepend=True))
                hooks.enter_context(module.register_forward_hook(leave, always_call=True))
        yield


def ranged_modules(model: nn.Module, blocks: list[nn.Module], compiled: Compilation) -> dict[str, nn.Module]:
    """Return the modules that get a range, by path: each block with its children, and outside of blocks each module
    without children. Compiled ones get none, because a graph has kernels of several modules."""
    if compiled.whole:
        return {}
    in_blocks = {id(module) for block in blocks for module in block.modules()}
    outside = {name: module for name, module in model.named_modules() if name and id(module) not in in_blocks}
    modules = {name: module for name, module in outside.items() if not list(module.children())}
    if not compiled.each_block:
        for name, module in model.named_modules():
            if any(module is block for block in blocks):
                inner = getattr(module, "_checkpoint_wrapped_module", module)
                modules[name] = module
                modules |= {f"{name}.{child}": part for child, part in inner.named_children() if _runs(part)}
    # Below a checkpointed block, paths have the name of PyTorch's wrapper.
    return {name.replace(CHECKPOINTED, ""): module for name, module in modules.items()}


def _runs(module: nn.Module) -> bool:
    """Whether it is called itself: a list of modules is not."""
    return not isinstance(module, nn.ModuleList | nn.ModuleDict | nn.ParameterList | nn.ParameterDict)
