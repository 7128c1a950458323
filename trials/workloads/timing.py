"""The workload `timing`: how long each phase of a training iteration takes."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from operator import attrgetter

from lmsweep.trials.bench.attention_error import flags_of_errors, own_attention_errors
from lmsweep.trials.bench.iterations import Series, compile_rows, host_bound_flags, take_series, time_rows
from lmsweep.trials.bench.varied_steps import BatchesTaken, token_rows
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.accelerator import has_events
from lmsweep.trials.machine.gpu.telemetry import Watch, gpu_flags, telemetry_rows
from lmsweep.trials.model.compiler import CompileCounts, compile_counts
from lmsweep.trials.model.trained_weights import flags_of_training
from lmsweep.trials.model.training_step import PHASES, TrainingStep, capture_phases
from lmsweep.trials.model.users.users_step import UsersStep
from lmsweep.trials.prediction.flop_count import count_flops
from lmsweep.trials.profiling.device_time import DeviceTime, device_rows, trace_device
from lmsweep.trials.results.measurement import Measurement, one_number
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import StepFlops, TrialConfig
from lmsweep.trials.timing.clock import Clock, Iteration, clock_for, phase_names, sums_by_name, time_iteration
from lmsweep.trials.timing.validity_flags import flags_of_times


def measure(bench: Workbench) -> Iterator[Measurement]:
    """Time each phase in seconds, and separately a first iteration that compiles. Raises RuntimeError if nothing was
    compiled. `bench.iteration` is `bench.step` or a user's own step, which is not compiled, captured or varied."""
    config = bench.config
    errors = own_attention_errors(bench, gradients=config.mode != "forward")
    yield from errors
    with Watch(config.device_type) as watch, bench.quiet():
        phases = bench.iteration.phases()
        names = phase_names(phases)

        finite: list[bool] = []  # of the first iteration's loss alone: reading each would make the host wait
        varied = BatchesTaken(bench.step) if config.varies else None

        def run_with(clock: Clock) -> Iteration:
            with varied.stepping() if varied else nullcontext():
                iteration = time_iteration(phases, clock)
                if not finite:
                    finite.append(_has_finite_loss(bench.iteration))
                bench.iteration.drop()
            return iteration

        run = partial(run_with, clock_for(config.device_type))
        if config.compiles:
            yield from compile_rows(bench, run, names, cuda_graphs=bench.step.uses_cuda_graphs)
        if config.capture != "none":
            with bench.account("capture"):
                phases = capture_phases(bench.step)  # from now on, `run_with` replays these, of the same names
        compiled = compile_counts()
        watch.wait()  # for its first reading
        scales: list[float] = []  # of gradients, before and after measuring: fp16 lowers it when it skips an update

        def note_scale() -> None:
            if isinstance(bench.iteration, TrainingStep):
                scales.append(bench.iteration.scaler.get_scale())

        def begin() -> None:
            note_scale()
            if varied:
                varied.restart()

        series = take_series(bench, run, attrgetter("step"), before_measuring=begin)
        note_scale()
        taken = list(varied.taken) if varied else []
        device: list[DeviceTime] = []
        has_device = has_events(config.device_type) and not varied  # traced steps would have other batches
        if has_device:
            with bench.account("profiled"):
                traced = trace_device(run_with, device_type=config.device_type, trial_seconds=bench.seconds_so_far)
                device = [replace(one, phases=sums_by_name(phases, one.phases)) for one in traced]
        training = _flags_of_training(bench, scales)
        if config.capture == "none":
            bench.traced = [one.work for one in device]  # for the workload `profile`, which has no captured phases

    if config.compiles:
        yield from _compile_counts(compiled)
    # Between the kernels of a captured step the device idles, too, but does not wait for the host.
    busy = [one.step for one in device] if config.capture == "none" else []
    common = (
        *flags_of_errors(errors),
        *(() if all(finite) else (Flag.NOT_FINITE,)),
        *training,
        *host_bound_flags(busy, [one.step for one in series.measured]),
        *series.flags,
        *gpu_flags(watch, since=series.since, until=series.until),
    )
    with bench.account("setup"):
        flops = _flops(bench)
    yield from _times(bench, names, series, common, flops)
    if taken:
        yield from token_rows(taken, [one.step for one in series.measured])
    if has_device:
        yield from device_rows(names, device)
    yield from telemetry_rows(watch, warmup_from=series.warmup_from, since=series.since, until=series.until)
    yield from _flops_rows(config, flops)


def _flags_of_training(bench: Workbench, scales: Sequence[float]) -> tuple[Flag, ...]:
    """Return flags of a step that does not train all of its weights. scales: before and after the measured steps."""
    if not isinstance(bench.iteration, TrainingStep):
        return ()
    with bench.account("setup"):
        found = flags_of_training(bench.iteration)
    skipped = scales[-1] < scales[0] and Flag.NO_UPDATE not in found
    return (*found, *((Flag.NO_UPDATE,) if skipped else ()))


def _has_finite_loss(iteration: TrainingStep | UsersStep) -> bool:
    return isinstance(iteration, UsersStep) or iteration.loss is None or bool(iteration.loss.isfinite().all())


def _flops(bench: Workbench) -> StepFlops | None:
    if bench.config.varies:
        return StepFlops(reason="the FLOPs of a step differ with its batch")
    if not bench.config.has_counted_flops:
        return None
    return bench.flops or count_flops(bench.config)


def _flops_rows(config: TrialConfig, flops: StepFlops | None) -> Iterator[Measurement]:
    if flops is None:
        return
    for phase in (*(name for name in PHASES[config.mode] if name != "optimizer"), "step"):
        yield one_number(phase, "flops", "FLOP", flops.of(phase), flops.reason)


def _compile_counts(at_first: CompileCounts) -> Iterator[Measurement]:
    counts = compile_counts()
    values = {
        "graphs": at_first.graphs,
        "graph_breaks": counts.graph_breaks,
        "recompiles": counts.graphs - at_first.graphs,
        "cache_hits": counts.cache_hits,
        "cache_misses": counts.cache_misses,
    }
    for metric, count in values.items():
        yield Measurement(phase="trial", metric=metric, unit="1", samples=(count,))
    yield one_number("trial", "recompile_time", "s", counts.seconds - at_first.seconds)


def _times(
    bench: Workbench, names: Sequence[str], series: Series[Iteration], common: tuple[Flag, ...], flops: StepFlops | None
) -> Iterator[Measurement]:
    config, device = bench.config, bench.datasheet

    def flags(phase: str, seconds: Sequence[float]) -> tuple[Flag, ...]:
        if config.varies:
            return common
        return common + flags_of_times(config, phase, seconds, device, flops.of(phase) if flops else None)

    yield from time_rows(series, list(dict.fromkeys((*names, "step"))), flags)  # a user's step may be one phase
    if has_events(config.device_type):
        samples, warmup = (
            tuple(one.enqueue for one in taken if one.enqueue is not None) for taken in (series.measured, series.warmup)
        )
        yield Measurement(phase="step", metric="enqueue_time", unit="s", samples=samples, warmup_samples=warmup)
