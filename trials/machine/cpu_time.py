"""CPU time on the cores of a trial: how much of it went to others while the trial needed it."""

import time
from dataclasses import dataclass

import psutil

from lmsweep.trials.machine.cpu_affinity import usable_cores

LAUNCHING_CORES = 2
"""What a trial on a GPU needs of its cores: forward is launched by one thread, backward by another."""
LEAST_TAKEN, LEAST_SHARE = 0.2, 0.05
"""Cores, and share of the cores, that others may always take: Ray has 0.04 of a core while a trial runs."""
LEAST_STOLEN = 0.05
"""Share of a guest's time on the CPU that its host may keep for others."""
TICK = 0.01
"""Seconds by which the kernel counts."""


@dataclass(frozen=True, kw_only=True)
class CpuTime:
    """Seconds that have been spent on some cores up to one moment."""

    at: float
    """time.monotonic() of the reading."""
    cores: int
    """How many logical cores these are."""
    used: float
    """By all processes."""
    stolen: float
    """By other guests of the machine that this one is a guest of."""
    own: float
    """By this process and those that it started, on whatever core."""


def read_cpu_time() -> CpuTime | None:
    """Of the cores that this process may run on; None where the system does not count core by core."""
    cores, each = usable_cores(), psutil.cpu_times(percpu=True)
    if max(cores) >= len(each):
        return None
    mine = [each[core] for core in cores]
    work = ("user", "nice", "system", "irq", "softirq")
    me = psutil.Process()
    own = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            own += sum(process.cpu_times()[:4])  # of itself and of its children that have ended
        except psutil.NoSuchProcess:
            continue  # it has ended just now, and its parent has its time
    return CpuTime(
        at=time.monotonic(),
        cores=len(cores),
        used=sum(getattr(core, name, 0.0) for core in mine for name in work),
        stolen=sum(getattr(core, "steal", 0.0) for core in mine),
        own=own,
    )


def is_host_busy(before: CpuTime | None, after: CpuTime | None, device_type: str) -> bool:
    """Whether others had so much of the cores between two readings that too little was left for the trial: on a CPU it
    needs all of them, on a GPU what launches the work. False where that is not known.
    """
    if before is None or after is None:
        return False
    seconds = after.at - before.at
    own, stolen = after.own - before.own, after.stolen - before.stolen
    others = after.used - before.used - own
    needed = after.cores if device_type == "cpu" else min(after.cores, LAUNCHING_CORES)
    free = (after.cores - needed + max(LEAST_TAKEN, LEAST_SHARE * after.cores)) * seconds
    # What is counted in ticks is off by as much as one, on each core.
    return others - after.cores * TICK > free or stolen - TICK > LEAST_STOLEN * (own + stolen)
