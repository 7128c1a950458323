"""CPU affinity: which cores belong to which GPU, so that trials side by side never share a core."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from lmsweep.trials.machine.gpu.nvml import by_nvml

SYSTEM = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, kw_only=True)
class Core:
    number: int
    physical: int
    """The first logical core of the same physical core."""
    numa_node: int | None
    """None if the system does not report it."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    names: tuple[str, ...]
    """Its index and its UUID; CUDA_VISIBLE_DEVICES accepts both."""
    numa_node: int | None
    """None if the system does not report it."""


def usable_cores() -> list[int]:
    """Return the logical cores this process may run on. Threads of one physical core are adjacent."""
    return [core.number for core in find_cores()]


def find_cores() -> list[Core]:
    """Return the cores this process may run on, ordered by NUMA node and physical core."""
    if not hasattr(os, "sched_getaffinity"):
        return [Core(number=number, physical=number, numa_node=None) for number in range(os.cpu_count() or 1)]
    found = [_core(number) for number in os.sched_getaffinity(0)]
    return sorted(found, key=lambda core: (core.numa_node or 0, core.physical, core.number))


def find_gpus() -> list[Gpu]:
    """Return every GPU that NVIDIA's driver reports; none without a driver."""
    return by_nvml(lambda nvml: [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())], otherwise=[])


def _gpu(nvml: ModuleType, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    node = _numa_node_of_device(nvml.nvmlDeviceGetPciInfo(handle).busId)
    return Gpu(names=(str(index), nvml.nvmlDeviceGetUUID(handle)), numa_node=node)


def cores_of(gpu_ids: Sequence[str], gpus: Sequence[Gpu], cores: Sequence[Core]) -> tuple[int, ...]:
    """Return the logical cores that belong to the GPUs with these ids; all cores if there are none.

    Each GPU owns an equal share of the physical cores of its NUMA node or, if the nodes are unknown, of all.
    """
    mine = [gpu for gpu in gpus if set(gpu.names) & set(gpu_ids)]
    if not mine:
        return tuple(core.number for core in cores)
    # Nodes count only if each GPU's is known and has cores that this process may run on.
    by_node = all(gpu.numa_node is not None and _physical(cores, gpu.numa_node) for gpu in gpus)
    found: list[int] = []
    for gpu in mine:
        node = gpu.numa_node if by_node else None
        neighbours = [other for other in gpus if node in (None, other.numa_node)]
        share = share_of(_physical(cores, node), neighbours.index(gpu), len(neighbours))
        found += [core.number for core in cores if core.physical in share and core.number not in found]
    return tuple(found)


def share_of(cores: Sequence[int], index: int, parts: int) -> tuple[int, ...]:
    """Return the cores of share `index` of `parts` equal shares; a single core if there are fewer cores than parts."""
    size = len(cores) // parts
    return tuple(cores[index * size : (index + 1) * size]) if size else (cores[index % len(cores)],)


def _physical(cores: Sequence[Core], numa_node: int | None) -> list[int]:
    """The physical cores of a NUMA node; None: of all nodes."""
    return list(dict.fromkeys(core.physical for core in cores if numa_node in (None, core.numa_node)))


@cache
def _core(number: int) -> Core:
    folder = SYSTEM / f"cpu{number}"
    siblings = folder / "topology" / "thread_siblings_list"
    first = re.match(r"\d+", siblings.read_text()) if siblings.exists() else None
    nodes = [int(path.name.removeprefix("node")) for path in folder.glob("node[0-9]*")]
    return Core(number=number, physical=int(first[0]) if first else number, numa_node=nodes[0] if nodes else None)


def _numa_node_of_device(bus_id: str) -> int | None:
    # NVML writes the PCI domain with eight digits, sysfs with four.
    domain, _, rest = bus_id.lower().partition(":")
    path = Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node")
    number = int(path.read_text()) if path.exists() else -1
    return number if number >= 0 else None
