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
from functools import cache
from pathlib import Path

import psutil

from lmsweep.orchestrator.cluster.nodes import Node, this_machine
from lmsweep.orchestrator.cluster.placement import live_nodes
from lmsweep.orchestrator.cluster.ray_session import NODE_SETTINGS
from lmsweep.trials.machine.cgroups import cpu_quotas, memory_limits
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


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    found: str
    advice: str | None = None
    """What to do; None if nothing is wrong."""
    fails: bool = False
    """Whether trials fail here, rather than measure something else."""


def examine() -> list[Finding]:
    """Run all checks on this machine."""
    _here.cache_clear()
    return [finding for check in CHECKS for finding in check()]


@cache
def _here() -> Node:
    return this_machine()


def devices() -> Iterator[Finding]:
    here = _here()
    names = [f"{device}: {one.device_name}" for device, one in here.environments.items()]
    yield Finding("devices", "; ".join([*names, *([f"{here.gpus} GPUs"] if here.gpus > 1 else [])]))
    if (seen := len(gpu_states().gpus)) > here.gpus:
        advice = "Check CUDA_VISIBLE_DEVICES, whether torch is a CUDA build, and whether it supports this driver."
        yield Finding("GPUs visible to torch", f"{here.gpus} of {seen}", advice)


def versions() -> Iterator[Finding]:
    for name in ("torch", "triton", "ray"):
        try:
            yield Finding(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "not installed")


def bytecode() -> Iterator[Finding]:
    """Whether torch's bytecode is cached; checked after `devices`, which imports torch in another process."""
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin, "torch is installed"
    if Path(importlib.util.cache_from_source(spec.origin)).exists():
        yield Finding("torch bytecode", "cached")
        return
    advice = (
        "Every process compiles torch's source again, which takes seconds. Unset PYTHONDONTWRITEBYTECODE, or run "
        f"once: {sys.executable} -m compileall -q {Path(spec.origin).parent.parent}"
    )
    yield Finding("torch bytecode", "not cached", advice)


def programs() -> Iterator[Finding]:
    compiler = os.environ.get("CXX") or next((name for name in ("g++", "c++", "clang++") if shutil.which(name)), None)
    compiling = "torch.compile needs a C++ compiler for the CPU and a C compiler for a GPU: install g++."
    profiling = "Needed by `profiler: nsys` only: install NVIDIA Nsight Systems to use that."
    for name, found, advice in (("C++ compiler", compiler, compiling), ("nsys", shutil.which("nsys"), profiling)):
        yield Finding(name, found or "none", None if found else advice)


def cores() -> Iterator[Finding]:
    usable, gpus = len(usable_cores()), len(gpu_states().gpus)
    for_each = f" for {gpus} GPU{'s' * (gpus > 1)}" if gpus else ""
    yield _unless(
        usable >= FEW_CORES * max(gpus, 1),
        "cores",
        f"{usable} of {os.cpu_count()}{for_each}",
        f"Fewer than {FEW_CORES} cores per trial: expect noise and, on a GPU, results flagged host_bound.",
    )
    # In a virtual machine, the system can count more idle time than has passed.
    busy = max(0.0, psutil.cpu_percent(interval=0.5)) / 100 * (os.cpu_count() or 1)
    advice = "Other processes are running and slow measurements down. Stop them, or wait until they end."
    yield _unless(busy <= max(0.5, 0.1 * usable), "busy cores", f"{busy:.1f}", advice)
    if quotas := cpu_quotas():
        advice = "A CPU quota pauses processes within an iteration. Give the container whole cores (cpuset) instead."
        binds = min(quotas) < (os.cpu_count() or 1)
        yield _unless(not binds, "container CPU quota", f"{min(quotas):g} cores" if binds else "none", advice)


def clocks() -> Iterator[Finding]:
    governors = sorted({text for path in SYSTEM.glob("cpu*/cpufreq/scaling_governor") if (text := _read(path))})
    found = ", ".join(governors) or "unknown (hidden, as in most virtual machines)"
    advice = "The clock frequency follows the load. Fix it with: sudo cpupower frequency-set -g performance"
    yield _unless(governors in ([], ["performance"]), "frequency governor", found, advice)
    no_turbo, boost = _read(SYSTEM / "intel_pstate/no_turbo"), _read(SYSTEM / "cpufreq/boost")
    turbo = {"0": "on", "1": "off"}.get(no_turbo or "") or {"1": "on", "0": "off"}.get(boost or "")
    if turbo:
        advice = "The clock frequency depends on temperature and load: CPU results vary by a few percent."
        yield _unless(turbo == "off", "turbo", turbo, advice)


def memory() -> Iterator[Finding]:
    here = psutil.virtual_memory()
    advice = "Little memory is free: large models on the CPU will run out of memory."
    yield _unless(here.available >= 4 * GIB, "memory", f"{gib(here.available)} of {gib(here.total)} free", advice)
    if limits := memory_limits():
        advice = "Less than the host has: a process that exceeds it is killed."
        binds = min(limits) < here.total  # without a limit, version 1 of control groups says 2^63 bytes
        yield _unless(not binds, "container memory limit", gib(min(limits)) if binds else "none", advice)
    swap = psutil.swap_memory()
    found = f"{gib(swap.used)} of {gib(swap.total)} used" if swap.total else "none"
    advice = "Trials wait for memory that was swapped out. Swap it back in with: sudo swapoff -a && sudo swapon -a"
    yield _unless(swap.used <= 0.1 * GIB, "swap", found, advice)


def disks() -> Iterator[Finding]:
    for what, path, enough in (
        ("disk for results (here)", Path.cwd(), ENOUGH_DISK),
        ("disk for compiled graphs", Path(tempfile.gettempdir()), ENOUGH_DISK),
        ("shared memory", Path("/dev/shm"), ENOUGH_SHARED_MEMORY),
    ):
        if path.exists():
            free = shutil.disk_usage(path).free
            advice = f"Less than {gib(enough)} is free: a run may fill it up."
            yield _unless(free >= enough, what, f"{gib(free)} free in {path}", advice)


def gpus() -> Iterator[Finding]:
    seen = gpu_states()
    counted = _counted_by_ray()
    if counted and counted > (usable := _here().gpus):
        yield missing_gpus(counted, len(seen.gpus), usable, seen.reason)
    elif seen.reason:
        yield Finding("NVIDIA GPUs", f"none ({seen.reason})")
    for index, gpu in enumerate(seen.gpus):
        yield Finding(f"GPU {index}", f"{gpu.name}, driver {gpu.driver_version}")
        for one in gpu_findings(gpu):
            yield replace(one, check=f"GPU {index}: {one.check}")


def _counted_by_ray() -> int | None:
    """Return how many GPUs Ray counts on this node; None in a process that is no task of Ray's."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    me = ray.get_runtime_context().get_node_id()
    return next((int(node.resources.get("GPU", 0)) for node in live_nodes() if node.node_id == me), None)


def missing_gpus(counted: int, driver: int, usable: int, reason: str | None) -> Finding:
    """Ray sends trials on GPUs to a node that says it has `counted` of them, and PyTorch can use only `usable`."""
    found = f"Ray counts {counted}, NVIDIA's driver {driver}{f' ({reason})' if reason else ''}, torch can use {usable}"
    if driver < counted:
        advice = (
            "Trials on GPUs fail here. Repair the driver (nvidia-smi must list them), or start Ray on this node with "
            f"--num-gpus={min(driver, usable)}."
        )
    else:
        advice = (
            "Trials on GPUs fail here. Install a torch with CUDA that supports this driver, and check "
            "CUDA_VISIBLE_DEVICES of `ray start`."
        )
    return Finding("GPUs of this node", found, advice, fails=True)


def gpu_findings(gpu: GpuState) -> Iterator[Finding]:
    """What NVML reports about a GPU besides its name."""
    if gpu.memory is not None and gpu.memory_used is not None:
        processes = "?" if gpu.processes is None else gpu.processes
        found = f"{processes} processes, {gib(gpu.memory_used)}, {gpu.utilization} % busy"
        advice = "Other processes take its memory and time: stop them (nvidia-smi lists them)."
        yield _unless(not (gpu.processes or gpu.utilization), "other processes", found, advice)
    if gpu.partitioned:
        yield Finding("MIG", "on", "A trial gets one MIG instance, so the datasheet's peak does not apply to it.")
    if gpu.persistent is False:
        advice = "The first trial waits for the driver to load. Turn it on with: sudo nvidia-smi -pm 1"
        yield Finding("persistence mode", "off", advice)
    if gpu.temperature is not None and gpu.slowdown_temperature is not None:
        found = f"{gpu.temperature} degC; throttles at {gpu.slowdown_temperature} degC"
        advice = "Close to throttling before anything runs: check the cooling."
        yield _unless(gpu.temperature <= gpu.slowdown_temperature - 15, "temperature", found, advice)
    if gpu.power_limit is not None and gpu.default_power_limit is not None:
        found = f"{gpu.power_limit:.0f} W of {gpu.default_power_limit:.0f} W by default"
        advice = "Below the default: expect results flagged power_capped."
        yield _unless(gpu.power_limit >= gpu.default_power_limit, "power limit", found, advice)
    if gpu.uncorrected_errors and gpu.ecc is not None:
        found = f"{'on' if gpu.ecc else 'off'}, {gpu.uncorrected_errors} uncorrected errors"
        yield Finding("ECC", found, "Its memory is failing: replace the GPU.")
    elif gpu.ecc is not None:
        advice = "ECC is off: compare results only with GPUs that have the same setting."
        yield _unless(gpu.ecc, "ECC", "on" if gpu.ecc else "off", advice)


def ray_settings() -> Iterator[Finding]:
    """How Ray was started, on a node of a cluster."""
    if "RAY_RAYLET_PID" not in os.environ:
        return
    wrong = [f"{name}={value}" for name, value in NODE_SETTINGS.items() if os.environ.get(name) != value]
    advice = f"Start Ray on this node with {' '.join(wrong)}"
    yield _unless(not wrong, "Ray settings", "wrong" if wrong else "right", advice)
    token = os.environ.get("RAY_AUTH_MODE") == "token"
    advice = "Anyone who can reach its ports can run code there: start Ray with RAY_AUTH_MODE=token."
    yield _unless(token, "Ray token", "required" if token else "not required", advice)


CHECKS = (devices, versions, bytecode, programs, cores, clocks, memory, disks, gpus, ray_settings)


def _unless(is_fine: bool, check: str, found: str, advice: str) -> Finding:
    return Finding(check, found, None if is_fine else advice)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:  # missing or not readable on this machine
        return None
