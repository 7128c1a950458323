"""Times pieces of work that are no training step: what a simple workload needs."""

from collections.abc import Callable, Iterator
from operator import attrgetter

from lmsweep.trials.bench.host_bound import queued_host_bound_flags
from lmsweep.trials.bench.iterations import take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.telemetry import Watch, gpu_flags
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.timing.clock import Phase
from lmsweep.trials.timing.queued_timer import QueuedTimer


def time_phases(bench: Workbench, **phases: Callable[[], object]) -> Iterator[Measurement]:
    """Yield `PHASE.time` for each keyword, in seconds, with the flags of the series and of the GPU's telemetry."""
    config = bench.config
    timer = QueuedTimer(
        [Phase(name=name, run=run) for name, run in phases.items()],
        config.device_type,
        warmup=config.warmup_steps,
        measured=config.measure_steps,
    )
    with Watch(config.device_type) as watch, bench.quiet():
        watch.wait()
        series = take_series(bench, timer, attrgetter("step"), before_measuring=timer.begin_measuring)
        host_bound = queued_host_bound_flags(bench, timer, series.measured)
    flags = (*host_bound, *series.flags, *gpu_flags(watch, since=series.since, until=series.until))
    for i, name in enumerate(phases):
        warmup, samples = (tuple(one.phases[i] for one in taken) for taken in (series.warmup, series.measured))
        yield Measurement(phase=name, metric="time", unit="s", samples=samples, warmup_samples=warmup, flags=flags)
