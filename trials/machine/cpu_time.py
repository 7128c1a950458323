"""CPU time on a trial's cores: how much of it other processes took while the trial needed it."""

import time
from contextlib import suppress
from dataclasses import dataclass

import psutil

from lmsweep.trials.machine.cpu_affinity import usable_cores

LAUNCHING_CORES = 2
"""Cores that a trial on a GPU needs: one thread launches forward, another launches backward."""
ALLOWED_CORES, ALLOWED_SHARE = 0.2, 0.05
"""Cores, or share of the cores if that is more, that others may always take. Ray takes 0.04 of a core in a trial."""
ALLOWED_STEAL = 0.05
"""Share of a virtual machine's CPU time that its host may give to other guests (steal time)."""
TICK = 0.01
"""Resolution of the kernel's CPU accounting, in seconds."""


@dataclass(frozen=True, kw_only=True)
class CpuTime:
    at: float
    """time.monotonic() of the reading."""
    cores: int
    """Number of the logical cores that were read."""
    used: float
    """CPU time of all processes."""
    stolen: float
    """Steal time: CPU time that the hypervisor gave to other guests."""
    trial: float
    """CPU time of this process and its descendants, on any core."""


def read_cpu_time() -> CpuTime | None:
    """Read the CPU time of the cores that this process may run on; None if the system does not list each of them."""
    cores, each = usable_cores(), psutil.cpu_times(percpu=True)
    if max(cores) >= len(each):
        return None
    mine = [each[core] for core in cores]
    work = ("user", "nice", "system", "irq", "softirq")
    trial = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has just ended, and its time is now its parent's
            trial += sum(process.cpu_times()[:4])  # user and system, its own and that of its ended children
    return CpuTime(
        at=time.monotonic(),
        cores=len(cores),
        used=sum(getattr(core, name, 0.0) for core in mine for name in work),
        stolen=sum(getattr(core, "steal", 0.0) for core in mine),
        trial=trial,
    )


def is_host_busy(before: CpuTime | None, after: CpuTime | None, device_type: str) -> bool:
    """Return whether other processes took CPU time that the trial needed. A trial on a GPU needs LAUNCHING_CORES."""
    if before is None or after is None:
        return False
    seconds = after.at - before.at
    trial, stolen = after.trial - before.trial, after.stolen - before.stolen
    others = after.used - before.used - trial
    needed = after.cores if device_type == "cpu" else min(after.cores, LAUNCHING_CORES)
    allowed = (after.cores - needed + max(ALLOWED_CORES, ALLOWED_SHARE * after.cores)) * seconds
    # Each core's work may be off by one tick. Steal is exactly 0 on cores without any, so one tick covers all of it.
    return others - after.cores * TICK > allowed or stolen - TICK > ALLOWED_STEAL * (trial + stolen)
