"""What disturbs a measurement on this machine before it begins: other processes on its cores and its GPUs, limits."""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lmsweep.analysis.acceptance.parts import Condition
from lmsweep.orchestrator.cluster.doctor import cores, gpu_findings
from lmsweep.trials.isolation.standby import visible_gpus
from lmsweep.trials.machine.cpu_affinity import Gpu, usable_cores
from lmsweep.trials.machine.gpu.gpu_inventory import gpu_states

OF_HOST = {
    "busy cores": "other processes use {} cores",
    "cores": "it has few cores ({})",
    "container CPU quota": "a quota limits it to {}",
}
"""Check of the doctor -> what it means for the times of the host."""
OF_GPU = {
    "other processes": "another process uses this GPU ({})",
    "MIG": "it is partitioned (MIG {})",
    "power limit": "its power limit is {}",
    "temperature": "it is hot before anything runs ({})",
    "ECC": "ECC is {}",
}
PASSING = ("busy cores", "other processes")
"""Checks that find other processes."""
OF_LINKS = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL", "NCCL_ALGO", "NCCL_PROTO")
"""Settings under which collectives take another way."""


class GpuHere(NamedTuple):
    """A GPU that will be measured."""

    uuid: str
    unit: str
    """GPU and its index in the driver's order."""
    visible: str
    """As CUDA_VISIBLE_DEVICES names it."""


def gpus_here(found: Sequence[Gpu]) -> tuple[GpuHere, ...]:
    """Return the GPUs among these that this process may use."""
    units = {name: (gpu.names[1], f"GPU {gpu.names[0]}") for gpu in found for name in gpu.names}
    return tuple(GpuHere(*units[name], visible=name) for name in visible_gpus(list(found)))


def disturbances(gpus: Sequence[GpuHere]) -> list[Condition]:
    """Return what is wrong here while nothing of ours runs. gpus: those that will be measured."""
    units = {gpu.unit for gpu in gpus}
    return [*_of_host(len(gpus)), *(one for one in _of_gpus() if one.unit in units), *_of_links(len(gpus))]


def _of_host(gpus: int) -> Iterator[Condition]:
    for one in cores():
        if one.advice and one.check in OF_HOST and not (one.check == "cores" and not gpus):
            says = OF_HOST[one.check].format(one.found)
            yield Condition("host", says, disturbs=one.check in PASSING)
    usable, there = len(usable_cores()), os.cpu_count() or 1
    if usable < there:
        yield Condition("host", f"this process may use {usable} of {there} cores", disturbs=True)


def _of_gpus() -> Iterator[Condition]:
    for index, state in enumerate(gpu_states().gpus):
        for one in gpu_findings(state):
            if one.advice and one.check in OF_GPU:
                found = one.found.partition(", ")[2] if one.check == "other processes" else one.found
                says = OF_GPU[one.check].format(found)  # a container hides the number of processes
                yield Condition(f"GPU {index}", says, disturbs=one.check in PASSING)


def _of_links(gpus: int) -> Iterator[Condition]:
    for name in OF_LINKS if gpus > 1 else ():
        if value := os.environ.get(name):
            yield Condition("links", f"{name}={value} is set here", disturbs=True)
