"""Whether the device waited for the host during iterations that were queued ahead."""

from collections.abc import Sequence

from lmsweep.trials.bench.workbench import Workbench
from lmsweep.trials.profiling.device_time import is_host_bound, trace_device
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.timing.clock import Iteration
from lmsweep.trials.timing.queued_timer import QueuedTimer


def host_bound_flags(bench: Workbench, timer: QueuedTimer, measured: Sequence[Iteration]) -> tuple[Flag, ...]:
    """Return the flag host_bound if the device was idle for a part of the `measured` iterations of `timer`.

    It was not if the host stayed ahead. A host that fell behind may only have waited for the device, as a loss does
    that reads how many targets count. So a few more iterations are traced: without device times, the flag stays.
    """
    if not timer.fell_behind:
        return ()
    with bench.account("profiled"):
        traced = trace_device(timer.from_idle, device_type=bench.config.device_type, trial_seconds=bench.seconds_so_far)
    each = timer.number_of_phases  # which are traced one by one
    busy = [sum(one.step for one in traced[i : i + each]) for i in range(0, len(traced), each)]
    if busy and not is_host_bound(busy, [one.step for one in measured]):
        return ()
    return (Flag.HOST_BOUND,)
