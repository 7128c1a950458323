"""Whether the device waited for the host: the flag host_bound of every workload is decided here."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import median

from lmsweep.trials.bench.iterations import Series, take_series
from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.machine.gpu.telemetry import Watch
from lmsweep.trials.profiling.device_time import trace_device
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.timing.clock import Iteration
from lmsweep.trials.timing.queued_timer import QueuedTimer

IDLE_SHARE = 0.05
"""Share of a step that the device may be idle before the step is flagged `host_bound`."""


def host_bound_flags(busy: Sequence[float], measured: Sequence[float]) -> tuple[Flag, ...]:
    """Return host_bound if the device works (`busy` seconds a step, if known) for less than 95 % of the median step."""
    return (Flag.HOST_BOUND,) if busy and median(busy) < (1 - IDLE_SHARE) * median(measured) else ()


def take_queued_series(bench: Workbench, timer: QueuedTimer, watch: Watch) -> Series[Iteration]:
    """Run iterations of the timer once the watch has begun; the flags also say whether the device waited."""
    watch.wait()
    series = take_series(bench, timer, attrgetter("step"), before_measuring=timer.begin_measuring)
    return replace(series, flags=(*_queued_host_bound_flags(bench, timer, series.measured), *series.flags))


def _queued_host_bound_flags(bench: Workbench, timer: QueuedTimer, measured: Sequence[Iteration]) -> tuple[Flag, ...]:
    """Return the flag host_bound if the device was idle during `measured` iterations that were queued ahead.

    It was not if the host stayed ahead. A host that fell behind may only have waited for the device, as a loss does
    that reads how many targets count. So a few more iterations are traced: without device times, the flag stays.
    """
    if not timer.fell_behind:
        return ()
    with bench.account("profiled"):
        traced = trace_device(timer.from_idle, device_type=bench.config.device_type, trial_seconds=bench.seconds_so_far)
    each = timer.number_of_phases  # which are traced one by one
    busy = [sum(one.step for one in traced[i : i + each]) for i in range(0, len(traced), each)]
    return host_bound_flags(busy, [one.step for one in measured]) if busy else (Flag.HOST_BOUND,)
