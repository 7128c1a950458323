"""Reports what this machine can measure and what would distort the results. It changes nothing.

To add a check, write a function that yields findings and list it in CHECKS.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from lmsweep.orchestrator.cluster.nodes import this_machine
from lmsweep.orchestrator.cluster.ray_session import NODE_SETTINGS
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.gpu.gpu_inventory import GpuState, gpu_states
from lmsweep.trials.spec.quantities import gib

FEW_CORES = 4
"""Cores per GPU below which kernel launches, compilation and clock sampling disturb each other."""

GIB = 2**30
ENOUGH_DISK = 10 * GIB
"""Bytes for a store and a compile cache with some hundred graphs."""
ENOUGH_SHARED_MEMORY = GIB
"""Bytes of /dev/shm, through which Ray's object store and the ranks of a trial exchange data."""

SYSTEM = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    found: str
    advice: str | None = None
    """What to do; None if nothing is wrong."""


def examine() -> list[Finding]:
    """Run all checks on this machine."""
    return [finding for check in CHECKS for finding in check()]


def devices() -> Iterator[Finding]:
    """The devices that trials can run on, as torch sees them."""
    here = this_machine()
    names = [f"{device}: {one.device_name}" for device, one in here.environments.items()]
    yield Finding("devices", "; ".join([*names, *([f"{here.gpus} GPUs"] if here.gpus > 1 else [])]))
    seen = gpu_states().gpus
    if len(seen) > here.gpus:
        advice = "Check CUDA_VISIBLE_DEVICES, whether torch is a CUDA build, and whether it supports this driver."
        yield Finding("GPUs visible to torch", f"{here.gpus} of {len(seen)}", advice)


def versions() -> Iterator[Finding]:
    """Versions of the libraries that measure."""
    for name in ("torch", "triton", "ray"):
        try:
            yield Finding(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "not installed")


def bytecode() -> Iterator[Finding]:
    """Whether torch's bytecode is cached; checked after `devices`, which imports torch in another process."""
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin, "torch is installed"
    kept = Path(importlib.util.cache_from_source(spec.origin)).exists()
    advice = (
        "Every process compiles torch's source again, which takes seconds. Unset PYTHONDONTWRITEBYTECODE, or run "
        f"once: {sys.executable} -m compileall -q {Path(spec.origin).parent.parent}"
    )
    yield Finding("torch bytecode", "cached" if kept else "not cached", None if kept else advice)


def programs() -> Iterator[Finding]:
    """Programs that compilation and profiling need."""
    compiler = os.environ.get("CXX") or next((name for name in ("g++", "c++", "clang++") if shutil.which(name)), None)
    advice = "torch.compile needs a C++ compiler for the CPU and a C compiler for a GPU: install g++."
    yield Finding("C++ compiler", compiler or "none", None if compiler else advice)
    nsys = shutil.which("nsys")
    advice = "Needed by `profiler: nsys` only: install NVIDIA Nsight Systems to use that."
    yield Finding("nsys", nsys or "none", None if nsys else advice)


def cores() -> Iterator[Finding]:
    """The usable cores, and how busy they are."""
    usable = len(usable_cores())
    gpus = len(gpu_states().gpus)
    few = usable < FEW_CORES * max(gpus, 1)
    for_each = f" for {gpus} GPU{'s' * (gpus > 1)}" if gpus else ""
    advice = f"Fewer than {FEW_CORES} cores per trial: expect noise and, on a GPU, results flagged host_bound."
    yield Finding("cores", f"{usable} of {os.cpu_count()}{for_each}", advice if few else None)
    # In a virtual machine, the system can count more idle time than has passed.
    busy = max(0.0, psutil.cpu_percent(interval=0.5)) / 100 * (os.cpu_count() or 1)
    advice = "Other processes are running and slow measurements down. Stop them, or wait until they end."
    yield Finding("busy cores", f"{busy:.1f}", advice if busy > max(0.5, 0.1 * usable) else None)
    quota = _first_words(CGROUP / "cpu.max")
    if quota and quota[0] != "max":
        advice = "A CPU quota pauses processes within an iteration. Give the container whole cores (cpuset) instead."
        yield Finding("container CPU quota", f"{int(quota[0]) / int(quota[1]):g} cores", advice)


def clocks() -> Iterator[Finding]:
    """What changes the cores' clock frequency."""
    governors = sorted({text for path in SYSTEM.glob("cpu*/cpufreq/scaling_governor") if (text := _read(path))})
    found = ", ".join(governors) or "unknown (hidden, as in most virtual machines)"
    advice = "The clock frequency follows the load. Fix it with: sudo cpupower frequency-set -g performance"
    yield Finding("frequency governor", found, advice if governors and governors != ["performance"] else None)
    no_turbo, boost = _read(SYSTEM / "intel_pstate/no_turbo"), _read(SYSTEM / "cpufreq/boost")
    turbo = {"0": "on", "1": "off"}.get(no_turbo or "") or {"1": "on", "0": "off"}.get(boost or "")
    advice = "The clock frequency depends on temperature and load: CPU results vary by a few percent."
    if turbo:
        yield Finding("turbo", turbo, advice if turbo == "on" else None)


def memory() -> Iterator[Finding]:
    """Memory of the host, and of the container."""
    here = psutil.virtual_memory()
    advice = "Little memory is free: large models on the CPU will run out of memory."
    found = f"{gib(here.available)} of {gib(here.total)} free"
    yield Finding("memory", found, advice if here.available < 4 * GIB else None)
    limit = _first_words(CGROUP / "memory.max")
    if limit and limit[0] != "max":
        advice = "Less than the host has: a process that exceeds it is killed."
        yield Finding("container memory limit", gib(int(limit[0])), advice if int(limit[0]) < here.total else None)
    swap = psutil.swap_memory()
    found = f"{gib(swap.used)} of {gib(swap.total)} used" if swap.total else "none"
    advice = "Trials wait for memory that was swapped out. Swap it back in with: sudo swapoff -a && sudo swapon -a"
    yield Finding("swap", found, advice if swap.used > 0.1 * GIB else None)


def disks() -> Iterator[Finding]:
    """Free space for results, compiled graphs and shared memory."""
    for what, path, enough in (
        ("disk for results (here)", Path.cwd(), ENOUGH_DISK),
        ("disk for compiled graphs", Path(tempfile.gettempdir()), ENOUGH_DISK),
        ("shared memory", Path("/dev/shm"), ENOUGH_SHARED_MEMORY),
    ):
        if path.exists():
            free = shutil.disk_usage(path).free
            advice = f"Less than {gib(enough)} is free: a run may fill it up." if free < enough else None
            yield Finding(what, f"{gib(free)} free in {path}", advice)


def gpus() -> Iterator[Finding]:
    """The state of each NVIDIA GPU."""
    seen = gpu_states()
    if seen.reason:
        yield Finding("NVIDIA GPUs", f"none ({seen.reason})")
        return
    for index, gpu in enumerate(seen.gpus):
        yield Finding(f"GPU {index}", f"{gpu.name}, driver {gpu.driver_version}")
        for one in gpu_findings(gpu):
            yield replace(one, check=f"GPU {index}: {one.check}")


def gpu_findings(gpu: GpuState) -> Iterator[Finding]:
    """What NVML reports about a GPU besides its name."""
    advice: str | None
    if gpu.memory is not None and gpu.memory_used is not None:
        processes = "?" if gpu.processes is None else gpu.processes
        found = f"{processes} processes, {gib(gpu.memory_used)}, {gpu.utilization} % busy"
        advice = "Other processes take its memory and time: stop them (nvidia-smi lists them)."
        yield Finding("other processes", found, advice if gpu.processes or gpu.utilization else None)
    if gpu.partitioned:
        yield Finding("MIG", "on", "A trial gets one MIG instance, so the datasheet's peak does not apply to it.")
    if gpu.persistent is False:
        advice = "The first trial waits for the driver to load. Turn it on with: sudo nvidia-smi -pm 1"
        yield Finding("persistence mode", "off", advice)
    if gpu.temperature is not None and gpu.slowdown_temperature is not None:
        hot = gpu.temperature > gpu.slowdown_temperature - 15
        advice = "Close to throttling before anything runs: check the cooling." if hot else None
        found = f"{gpu.temperature} degC; throttles at {gpu.slowdown_temperature} degC"
        yield Finding("temperature", found, advice)
    if gpu.power_limit is not None and gpu.default_power_limit is not None:
        low = gpu.power_limit < gpu.default_power_limit
        advice = "Below the default: expect results flagged power_capped." if low else None
        yield Finding("power limit", f"{gpu.power_limit:.0f} W of {gpu.default_power_limit:.0f} W by default", advice)
    if gpu.ecc is not None:
        broken = f", {gpu.uncorrected_errors} uncorrected errors" if gpu.uncorrected_errors else ""
        advice = None if gpu.ecc else "ECC is off: compare results only with GPUs that have the same setting."
        advice = "Its memory is failing: replace the GPU." if broken else advice
        yield Finding("ECC", f"{'on' if gpu.ecc else 'off'}{broken}", advice)


def ray_settings() -> Iterator[Finding]:
    """How Ray was started, on a node of a cluster."""
    if "RAY_RAYLET_PID" not in os.environ:
        return
    wrong = [f"{name}={value}" for name, value in NODE_SETTINGS.items() if os.environ.get(name) != value]
    advice = f"Start Ray on this node with {' '.join(wrong)}" if wrong else None
    yield Finding("Ray settings", "wrong" if wrong else "right", advice)
    token = os.environ.get("RAY_AUTH_MODE") == "token"
    advice = None if token else "Anyone who can reach its ports can run code there: start Ray with RAY_AUTH_MODE=token."
    yield Finding("Ray token", "required" if token else "not required", advice)


CHECKS = (devices, versions, bytecode, programs, cores, clocks, memory, disks, gpus, ray_settings)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:  # missing or not readable on this machine
        return None


def _first_words(path: Path) -> list[str]:
    return (_read(path) or "").split()
