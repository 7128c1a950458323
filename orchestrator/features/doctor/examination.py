"""Reports what this machine can measure and what would distort the results. It changes nothing.

To add a check, write a function that yields findings and list it in CHECKS.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import psutil

from lmsweep.orchestrator.cluster.joining import connect
from lmsweep.orchestrator.cluster.node_discovery import ask_nodes
from lmsweep.orchestrator.cluster.nodes import this_machine
from lmsweep.orchestrator.cluster.placement import live_nodes
from lmsweep.orchestrator.cluster.ray_session import NODE_SETTINGS
from lmsweep.orchestrator.features.doctor.gpu_inventory import gpu_states
from lmsweep.orchestrator.features.doctor.machine_checks import Examined, Found, cores, gpu_findings, unless
from lmsweep.trials.machine.cgroups import memory_limits
from lmsweep.trials.spec.quantities import gib

GIB = 2**30
ENOUGH_DISK = 10 * GIB
"""Bytes for a store and a compile cache with some hundred graphs."""
ENOUGH_SHARED_MEMORY = GIB
"""Bytes of /dev/shm, through which Ray's object store and the ranks of a trial exchange data."""
ENOUGH_MEMORY = 4 * GIB
"""Free bytes below which models of the larger sizes are unlikely to fit on the CPU."""
LITTLE_SWAP = 0.1 * GIB
"""Bytes in swap that are no reason for a warning: systems swap out a little of what is idle."""

SYSTEM = Path("/sys/devices/system/cpu")
PCI = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY = "0x10de", "0x03"
"""The vendor of a PCI device, and how the class of one that draws or computes begins."""


def examine() -> list[Found]:
    _here.cache_clear()
    return [finding for check in CHECKS for finding in check()]


def examine_nodes(address: str | None) -> list[Examined]:
    """Examine this machine, or each node of the cluster at an address. Raises what `connect` and `ask_nodes` raise."""
    if address is None:
        return [Examined(node=None, findings=examine())]
    connect(address)
    alive = live_nodes()
    pairs = zip(alive, ask_nodes(alive, examine), strict=True)
    return [Examined(node=node.address, findings=findings) for node, findings in pairs]


_here = cache(this_machine)


def devices() -> Iterator[Found]:
    here = _here()
    names = [f"{device}: {one.device_name}" for device, one in here.environments.items()]
    yield Found("devices", "; ".join([*names, *([f"{here.gpus} GPUs"] if here.gpus > 1 else [])]))
    if (seen := len(gpu_states().gpus)) > here.gpus:
        advice = "Check CUDA_VISIBLE_DEVICES, whether torch is a CUDA build, and whether it supports this driver."
        yield Found("GPUs visible to torch", f"{here.gpus} of {seen}", "warning", advice)


def versions() -> Iterator[Found]:
    for name in ("torch", "triton", "ray"):
        try:
            yield Found(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Found(name, "not installed")


def bytecode() -> Iterator[Found]:
    """Whether torch's bytecode is cached; checked after `devices`, which imports torch in another process."""
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin, "torch is installed"
    if Path(importlib.util.cache_from_source(spec.origin)).exists():
        yield Found("torch bytecode", "cached")
        return
    advice = (
        "Every process compiles torch's source again, which takes seconds. Unset PYTHONDONTWRITEBYTECODE, or run "
        f"once: {sys.executable} -m compileall -q {Path(spec.origin).parent.parent}"
    )
    yield Found("torch bytecode", "not cached", "warning", advice)


def programs() -> Iterator[Found]:
    compiler = os.environ.get("CXX") or next((name for name in ("g++", "c++", "clang++") if shutil.which(name)), None)
    compiling = "torch.compile needs a C++ compiler for the CPU and a C compiler for a GPU: install g++."
    profiling = "Needed by `profiler: nsys` only: install NVIDIA Nsight Systems to use that."
    for name, found, advice in (("C++ compiler", compiler, compiling), ("nsys", shutil.which("nsys"), profiling)):
        yield unless(found is not None, name, found or "none", advice)


def clocks() -> Iterator[Found]:
    governors = sorted({text for path in SYSTEM.glob("cpu*/cpufreq/scaling_governor") if (text := _read(path))})
    found = ", ".join(governors) or "unknown (hidden, as in most virtual machines)"
    advice = "The clock frequency follows the load. Fix it with: sudo cpupower frequency-set -g performance"
    yield unless(governors in ([], ["performance"]), "frequency governor", found, advice)  # []: hidden
    no_turbo, boost = _read(SYSTEM / "intel_pstate/no_turbo"), _read(SYSTEM / "cpufreq/boost")  # Intel, others
    turbo = {"0": "on", "1": "off"}.get(no_turbo or "") or {"1": "on", "0": "off"}.get(boost or "")
    if turbo:
        advice = "The clock frequency depends on temperature and load: CPU results vary by a few percent."
        yield unless(turbo == "off", "turbo", turbo, advice)


def memory() -> Iterator[Found]:
    here = psutil.virtual_memory()
    advice = "Little memory is free: large models on the CPU will run out of memory."
    yield unless(here.available >= ENOUGH_MEMORY, "memory", f"{gib(here.available)} of {gib(here.total)} free", advice)
    if limits := memory_limits():
        advice = "Less than the host has: a process that exceeds it is killed."
        binds = min(limits) < here.total  # without a limit, version 1 of control groups says 2^63 bytes
        yield unless(not binds, "container memory limit", gib(min(limits)) if binds else "none", advice)
    swap = psutil.swap_memory()
    found = f"{gib(swap.used)} of {gib(swap.total)} used" if swap.total else "none"
    advice = "Trials wait for memory that was swapped out. Swap it back in with: sudo swapoff -a && sudo swapon -a"
    yield unless(swap.used <= LITTLE_SWAP, "swap", found, advice)


def disks() -> Iterator[Found]:
    for what, path, enough in (
        ("disk for results (here)", Path.cwd(), ENOUGH_DISK),
        ("disk for compiled graphs", Path(tempfile.gettempdir()), ENOUGH_DISK),
        ("shared memory", Path("/dev/shm"), ENOUGH_SHARED_MEMORY),
    ):
        if path.exists():
            free = shutil.disk_usage(path).free
            advice = f"Less than {gib(enough)} is free: a run may fill it up."
            yield unless(free >= enough, what, f"{gib(free)} free in {path}", advice)


def gpus() -> Iterator[Found]:
    seen = gpu_states()
    counted = _counted_by_ray()
    usable = _here().gpus
    if counted and counted > usable:
        yield missing_gpus(counted, len(seen.gpus), usable, seen.reason)
    elif seen.reason:
        plugged = sum(
            _read(one / "vendor") == NVIDIA and (_read(one / "class") or "").startswith(DISPLAY)
            for one in PCI.glob("*")
        )
        advice = f"The machine has {plugged}: install or repair NVIDIA's driver; nvidia-smi must list them."
        found = f"none: trials run on the CPU alone ({seen.reason})"
        yield unless(not plugged, "NVIDIA GPUs", found, advice)
    for index, gpu in enumerate(seen.gpus):
        yield Found(f"GPU {index}", f"{gpu.name}, driver {gpu.driver_version}")
        for one in gpu_findings(gpu):
            yield replace(one, check=f"GPU {index}: {one.check}")


def _counted_by_ray() -> int | None:
    """Return how many GPUs Ray counts on this node; None in a process that is no task of Ray's."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    me = ray.get_runtime_context().get_node_id()
    return next((int(node.resources.get("GPU", 0)) for node in live_nodes() if node.node_id == me), None)


def missing_gpus(counted: int, driver: int, usable: int, reason: str | None) -> Found:
    """Return what is wrong with a node to which Ray sends trials for `counted` GPUs, while torch can use fewer."""
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
    return Found("GPUs of this node", found, "fails", advice)


def ray_settings() -> Iterator[Found]:
    """How Ray was started, on a node of a cluster."""
    if "RAY_RAYLET_PID" not in os.environ:
        return
    wrong = [f"{name}={value}" for name, value in NODE_SETTINGS.items() if os.environ.get(name) != value]
    advice = f"Start Ray on this node with {' '.join(wrong)}"
    yield unless(not wrong, "Ray settings", "wrong" if wrong else "right", advice)
    token = os.environ.get("RAY_AUTH_MODE") == "token"
    advice = "Anyone who can reach its ports can run code there: start Ray with RAY_AUTH_MODE=token."
    yield unless(token, "Ray token", "required" if token else "not required", advice)
    secret = Path("~/.ray/auth_token").expanduser()
    if token and secret.exists() and secret.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        advice = "Whoever has the token runs code on the cluster. On this node: chmod 600 ~/.ray/auth_token"
        yield Found("Ray token's file", "open to other users of the node", "warning", advice)


CHECKS = (devices, versions, bytecode, programs, cores, clocks, memory, disks, gpus, ray_settings)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:  # missing or not readable on this machine
        return None
