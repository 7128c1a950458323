"""The doctor: what this machine can measure, and what about it would make the numbers wrong. It looks and changes
nothing. To add a check: a function that yields findings, and a line in CHECKS.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from lmsweep.orchestrator.cluster.nodes import this_machine
from lmsweep.orchestrator.cluster.ray_session import NODE_SETTINGS
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.gpu_inventory import GpuState, gpu_states
from lmsweep.trials.spec.quantities import gib

FEW_CORES = 4
"""Below so many cores for each GPU, launching kernels, compiling and watching the clocks get into each other's way."""

GIB = 2**30
ENOUGH_DISK = 10 * GIB
"""Bytes for a compile cache of some hundred graphs and a store."""
ENOUGH_SHARED_MEMORY = GIB
"""Bytes of /dev/shm: Ray's object store and the ranks of a trial exchange data there; containers often get 64 MB."""

SYSTEM = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    check: str
    found: str
    advice: str | None = None
    """What to do; None where nothing is wrong."""


def examine() -> list[Finding]:
    """Everything that can be found out here."""
    return [finding for check in CHECKS for finding in check()]


def devices() -> Iterator[Finding]:
    """What trials can run on, as torch sees it."""
    here = this_machine()
    names = [f"{device}: {one.device_name}" for device, one in here.environments.items()]
    if here.gpus > 1:
        names.append(f"{here.gpus} GPUs")
    yield Finding(check="can measure on", found="; ".join(names))
    seen = gpu_states().gpus
    if len(seen) > here.gpus:
        yield Finding(
            check="GPUs that torch uses",
            found=f"{here.gpus} of {len(seen)}",
            advice="Is CUDA_VISIBLE_DEVICES set, torch built without CUDA, or the driver too old for this torch?",
        )


def versions() -> Iterator[Finding]:
    """The software that measures."""
    for name in ("torch", "triton", "ray"):
        try:
            yield Finding(check=name, found=importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(check=name, found="not installed")


def bytecode() -> Iterator[Finding]:
    """Whether Python has kept what it compiled of torch; looked at after `devices`, which has had torch imported."""
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin, "torch is installed"
    kept = Path(importlib.util.cache_from_source(spec.origin)).exists()
    advice = (
        "Every process compiles torch's source anew, which makes each start seconds longer. Unset "
        f"PYTHONDONTWRITEBYTECODE, or once: {sys.executable} -m compileall -q {Path(spec.origin).parent.parent}"
    )
    yield Finding(check="torch's bytecode", found="kept" if kept else "not kept", advice=None if kept else advice)


def programs() -> Iterator[Finding]:
    """Programs that some workloads need."""
    compiler = os.environ.get("CXX") or next((name for name in ("g++", "c++", "clang++") if shutil.which(name)), None)
    yield Finding(
        check="C++ compiler",
        found=compiler or "none",
        advice=None if compiler else "torch.compile needs one on the CPU, and a C compiler on a GPU: install g++.",
    )
    nsys = shutil.which("nsys")
    advice = "Only `profiler: nsys` needs it; PyTorch's own profiler does without. Install NVIDIA Nsight Systems."
    yield Finding(check="nsys", found=nsys or "none", advice=None if nsys else advice)


def cores() -> Iterator[Finding]:
    """The cores, and who else uses them."""
    usable = len(usable_cores())
    gpus = len(gpu_states().gpus)
    few = usable < FEW_CORES * max(gpus, 1)
    for_each = f" for {gpus} GPU{'s' * (gpus > 1)}" if gpus else ""
    advice = f"Fewer than {FEW_CORES} for each trial: expect noise, and on a GPU host_bound results."
    yield Finding(check="cores", found=f"{usable} of {os.cpu_count()}{for_each}", advice=advice if few else None)
    # Of a virtual machine the system can count more idle time than there was time.
    busy = max(0.0, psutil.cpu_percent(interval=0.5)) / 100 * (os.cpu_count() or 1)
    advice = "Other processes are at work; what they take is missing in the measurements. End them or wait."
    yield Finding(
        check="cores in use now", found=f"{busy:.1f}", advice=advice if busy > max(0.5, 0.1 * usable) else None
    )
    quota = _first_words(CGROUP / "cpu.max")
    if quota and quota[0] != "max":
        allowed = int(quota[0]) / int(quota[1])
        advice = (
            "A quota stops a process in the middle of an iteration. Give the container whole cores (cpuset) instead."
        )
        yield Finding(check="quota of the container", found=f"{allowed:g} cores", advice=advice)


def clocks() -> Iterator[Finding]:
    """What moves the cores' clocks."""
    governors = sorted({text for path in SYSTEM.glob("cpu*/cpufreq/scaling_governor") if (text := _read(path))})
    advice = "Clocks follow the load: sudo cpupower frequency-set -g performance"
    yield Finding(
        check="governor of the clocks",
        found=", ".join(governors) or "unknown: the system shows none, as in a virtual machine",
        advice=advice if governors and governors != ["performance"] else None,
    )
    turbo = {"0": "on", "1": "off"}.get(_read(SYSTEM / "intel_pstate/no_turbo") or "") or {"1": "on", "0": "off"}.get(
        _read(SYSTEM / "cpufreq/boost") or ""
    )
    advice = "Clocks depend on temperature and on the neighbours: CPU results scatter by some per cent."
    if turbo:
        yield Finding(check="turbo", found=turbo, advice=advice if turbo == "on" else None)


def memory() -> Iterator[Finding]:
    """Memory of the host, and of the container."""
    here = psutil.virtual_memory()
    found = f"{gib(here.available)} of {gib(here.total)} free"
    advice = "Little is left: large models on the CPU will be out of memory." if here.available < 4 * GIB else None
    yield Finding(check="memory", found=found, advice=advice)
    limit = _first_words(CGROUP / "memory.max")
    if limit and limit[0] != "max":
        advice = "Less than the host has: what goes beyond is killed." if int(limit[0]) < here.total else None
        yield Finding(check="memory limit of the container", found=gib(int(limit[0])), advice=advice)
    swap = psutil.swap_memory()
    advice = "Memory has been moved to disk; a trial that needs it back waits. sudo swapoff -a && sudo swapon -a"
    yield Finding(
        check="swap",
        found=f"{gib(swap.used)} of {gib(swap.total)} used" if swap.total else "none",
        advice=advice if swap.used > 0.1 * GIB else None,
    )


def disks() -> Iterator[Finding]:
    """Room for results, compiled graphs and shared memory."""
    for what, path, enough in (
        ("disk for results (here)", Path.cwd(), ENOUGH_DISK),
        ("disk for compiled graphs", Path(tempfile.gettempdir()), ENOUGH_DISK),
        ("shared memory", Path("/dev/shm"), ENOUGH_SHARED_MEMORY),
    ):
        if path.exists():
            free = shutil.disk_usage(path).free
            advice = f"Less than {gib(enough)}." if free < enough else None
            yield Finding(check=what, found=f"{gib(free)} free in {path}", advice=advice)


def gpus() -> Iterator[Finding]:
    """The state of each NVIDIA GPU."""
    seen = gpu_states()
    if seen.reason:
        yield Finding(check="NVIDIA GPUs", found=f"none ({seen.reason})")
        return
    for index, gpu in enumerate(seen.gpus):
        yield Finding(check=f"GPU {index}", found=f"{gpu.name}, driver {gpu.driver_version}")
        for name, found, advice in _doubts(gpu):
            yield Finding(check=f"GPU {index}: {name}", found=found, advice=advice)


def _doubts(gpu: GpuState) -> Iterator[tuple[str, str, str | None]]:
    """What is to be known of a GPU beside its name."""
    if gpu.memory is not None and gpu.memory_used is not None:
        busy = bool(gpu.processes) or bool(gpu.utilization)
        processes = "?" if gpu.processes is None else gpu.processes
        found = f"{processes} processes, {gib(gpu.memory_used)}, {gpu.utilization} % busy"
        yield "others on it", found, "They take memory and time: end them (nvidia-smi names them)." if busy else None
    if gpu.partitioned:
        yield "MIG", "on", "A trial sees one instance, and its share of the peak is not that of the datasheet."
    if gpu.persistent is False:
        yield "persistence", "off", "The first trial waits for the driver: sudo nvidia-smi -pm 1"
    if gpu.temperature is not None and gpu.slowdown_temperature is not None:
        hot = gpu.temperature > gpu.slowdown_temperature - 15
        found = f"{gpu.temperature} degC; slows down from {gpu.slowdown_temperature}"
        yield "temperature", found, "Hot before anything runs: look at the cooling." if hot else None
    if gpu.power_limit is not None and gpu.default_power_limit is not None:
        low = gpu.power_limit < gpu.default_power_limit
        found = f"{gpu.power_limit:.0f} W of {gpu.default_power_limit:.0f} W by default"
        yield "power limit", found, "Lower than others have: expect power_capped." if low else None
    if gpu.ecc is not None:
        broken = f", {gpu.uncorrected_errors} uncorrected errors" if gpu.uncorrected_errors else ""
        off = None if gpu.ecc else "Off: results compare with GPUs of the same setting only."
        yield "ECC", f"{'on' if gpu.ecc else 'off'}{broken}", "The memory is failing: exchange it." if broken else off


def ray_settings() -> Iterator[Finding]:
    """How Ray was started, where this is a node of a cluster."""
    if "RAY_RAYLET_PID" not in os.environ:
        return
    wrong = [f"{name}={value}" for name, value in NODE_SETTINGS.items() if os.environ.get(name) != value]
    advice = f"Start Ray on this node with {' '.join(wrong)}" if wrong else None
    yield Finding(check="Ray's settings", found="not lmsweep's" if wrong else "lmsweep's", advice=advice)
    token = os.environ.get("RAY_AUTH_MODE") == "token"
    advice = None if token else "Who reaches its ports runs code there: start Ray with RAY_AUTH_MODE=token."
    yield Finding(check="Ray's token", found="asked for" if token else "not asked for", advice=advice)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    devices,
    versions,
    bytecode,
    programs,
    cores,
    clocks,
    memory,
    disks,
    gpus,
    ray_settings,
)


def as_text(findings: list[Finding]) -> str:
    """A table, and the number of things to see to."""
    from tabulate import tabulate

    rows = [[one.check, one.found, one.advice or "fine"] for one in findings]
    count = sum(one.advice is not None for one in findings)
    words = "nothing to see to" if not count else "1 thing to see to" if count == 1 else f"{count} things to see to"
    return f"{tabulate(rows, headers=['check', 'finding', 'advice'], disable_numparse=True)}\n\n{words}"


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:  # not on this machine, or not for us
        return None


def _first_words(path: Path) -> list[str]:
    return (_read(path) or "").split()
