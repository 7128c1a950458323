"""What disturbs a measurement on this machine before it begins: other processes on its cores and its GPUs, limits."""

import os
from collections.abc import Collection

from lmsweep.orchestrator.cluster.machine_checks import cores, gpu_findings
from lmsweep.orchestrator.features.accept.acceptance import Condition
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.gpu.gpu_inventory import gpu_states

OF_HOST = {
    "busy cores": "other processes use {} cores",
    "cores": "it has few cores ({})",
    "container CPU quota": "a quota limits it to {}",
}
"""Check of the machine -> what it means for the times of the host."""
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


def disturbances(gpus: Collection[str]) -> list[Condition]:
    """Return what is wrong here while nothing of ours runs. gpus: units that will be measured."""
    known = OF_HOST if gpus else {name: words for name, words in OF_HOST.items() if name != "cores"}
    checks = [("host", one, known) for one in cores()]
    checks += [(f"GPU {i}", one, OF_GPU) for i, state in enumerate(gpu_states().gpus) for one in gpu_findings(state)]
    found = []
    for unit, one, words in checks:
        if one.advice and one.check in words and unit in ("host", *gpus):
            # A container hides the number of processes.
            shown = one.found.partition(", ")[2] if one.check == "other processes" else one.found
            found.append(Condition(unit, words[one.check].format(shown), disturbs=one.check in PASSING))
    usable, there = len(usable_cores()), os.cpu_count() or 1
    if usable < there:
        # Times of the cores are compared with those of as many; launches are not.
        found.append(Condition("host", f"this process may use {usable} of {there} cores", disturbs=bool(gpus)))
    set_here = [(name, os.environ[name]) for name in OF_LINKS if os.environ.get(name) and len(gpus) > 1]
    return [*found, *(Condition("links", f"{name}={value} is set here", disturbs=True) for name, value in set_here)]
