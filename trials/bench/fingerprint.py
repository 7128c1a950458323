"""The hardware and software of a trial. `python -m` prints those of this machine and its cores' rates, as JSON."""

import functools
import importlib.metadata
import json
import math
import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import torch

from lmsweep import trials
from lmsweep.trials.analytic.datasheets import CpuRates
from lmsweep.trials.code.git import ask_git
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.machine.gpu.accelerator import device_module, device_name, is_nvidia, missing_modules
from lmsweep.trials.machine.gpu.nvml import by_nvml
from lmsweep.trials.machine.host_memory import memory_for_a_trial
from lmsweep.trials.machine.processes import die_with_parent
from lmsweep.trials.model.precision_modes import float32_matmul_in_force
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.spec.words import GPU_DEVICES

MATRIX_WIDTH = 512
"""Width of the square matrices that are multiplied."""
COPIED_BYTES = 2**25  # source and target are larger than most caches, so that the rate is that of memory
LEAST_RUNS = 2
MOST_RATE_SECONDS = 0.03
"""Time limit for one rate, unless LEAST_RUNS take longer."""


def fingerprint(device_type: str, *, trial_cores: int | None = None) -> Fingerprint:
    """Return the fingerprint of this process for cpu, mps, cuda or xpu; `trial_cores` are those of the whole trial."""
    on_gpu = device_type in GPU_DEVICES
    gpu = device_module(device_type).get_device_properties(0) if on_gpu else None
    cores, usable = os.cpu_count() or 1, len(usable_cores())
    host_memory = psutil.virtual_memory().total
    if device_type == "cpu":
        used = trial_cores or usable  # with fewer cores in use it is another device
        name = f"{_cpu_name()} ({cores if used >= cores else f'{used} of {cores}'} cores)"
    else:
        name = device_name(device_type) if on_gpu else f"{_cpu_name()} GPU"
    driver = getattr(gpu, "driver_version", None)
    if is_nvidia(device_type):
        driver = by_nvml(lambda nvml: str(nvml.nvmlSystemGetDriverVersion()), otherwise=None)
    return Fingerprint(
        device_name=name,
        device_memory=gpu.total_memory if gpu else None,
        driver_version=driver,
        cuda_version=_runtime_version() if on_gpu else None,
        torch_version=str(torch.__version__),  # torch's own string type would make every reader import torch
        triton_version=_triton_version() if on_gpu else None,
        python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
        accelerator_type=accelerator_type(name) if on_gpu else None,
        gpu_uuid=f"GPU-{gpu.uuid}" if gpu and is_nvidia(device_type) else None,
        host_name=socket.gethostname(),
        host_cpu=_cpu_name(),
        host_cores=cores,
        host_memory=host_memory,
        host_memory_for_a_trial=memory_for_a_trial(host_memory),
        cores_used=usable,
        host_load=os.getloadavg()[0],
        power_limit=by_nvml(_power_limit, otherwise=None) if is_nvidia(device_type) else None,
        float32_matmul=float32_matmul_in_force(device_type),
        lmsweep_version=trials.__version__,
        lmsweep_commit=_commit(),
    )


def accelerator_type(device_name: str) -> str:
    """Return Ray's name for the type of a GPU: A100 for `NVIDIA A100-SXM4-80GB`."""
    product = device_name.removeprefix("NVIDIA ").strip()
    # Words of capitals alone, such as RTX, and the first one with a digit.
    model = re.match(r"(?:[A-Z]+ )*[A-Z0-9]*\d[A-Z0-9]*", product.removeprefix("Tesla "))
    return (model.group(0) if model else product).replace(" ", "-")


def present_devices() -> list[str]:
    """Return the kinds of device that this machine has and this PyTorch can use: cpu, cuda, xpu, mps."""
    return ["cpu", *(name for name in (*GPU_DEVICES, "mps") if device_module(name).is_available())]


def cpu_rates() -> CpuRates:
    """Measure one core, and return the estimated rates of all cores. A copied byte counts twice: read and written.

    Measuring all at once would take ten times longer beside another process: all threads wait for the slowest. That n
    cores are as fast as sqrt(n) times one is fitted to small models on 2 and 16 cores, not measured.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    flops, all_cores = 2 * MATRIX_WIDTH**3, math.sqrt(len(usable_cores()))
    one, other = torch.randn(MATRIX_WIDTH, MATRIX_WIDTH), torch.randn(MATRIX_WIDTH, MATRIX_WIDTH)
    narrow, narrower = one.bfloat16(), other.bfloat16()
    source = torch.ones(COPIED_BYTES, dtype=torch.uint8)
    target = torch.ones_like(source)
    found = CpuRates(
        fp32=all_cores * flops / _shortest(lambda: one @ other),
        bf16=all_cores * flops / _shortest(lambda: narrow @ narrower),
        bytes_per_second=all_cores * 2 * COPIED_BYTES / _shortest(lambda: target.copy_(source)),
    )
    torch.set_num_threads(threads)
    return found


@functools.cache
def _cpu_name() -> str:
    if sys.platform == "darwin":
        return subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=True
        ).stdout.strip()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _power_limit(nvml: Any) -> float:
    gpu = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    return float(nvml.nvmlDeviceGetPowerManagementLimit(gpu)) / 1000


def _runtime_version() -> str | None:
    others = {"hip": torch.version.hip, "xpu": torch.version.xpu}
    return torch.version.cuda or next((f"{name} {version}" for name, version in others.items() if version), None)


@functools.cache
def _triton_version() -> str | None:
    for distribution in ("triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-xpu"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@functools.cache
def _commit() -> str | None:
    if "LMSWEEP_COMMIT" in os.environ:
        return os.environ["LMSWEEP_COMMIT"]
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    answer = ask_git(root, "rev-parse", "HEAD")
    return answer.strip() if answer else None


def _shortest(run: Callable[[], object]) -> float:
    """Return the shortest CPU time of a run in this thread; time that other processes have the core is not counted."""
    run()  # chooses the kernel
    shortest, until = float("inf"), time.perf_counter() + MOST_RATE_SECONDS
    runs = 0
    while runs < LEAST_RUNS or time.perf_counter() < until:
        began = time.thread_time()
        run()
        shortest = min(shortest, time.thread_time() - began)
        runs += 1
    return shortest


def main() -> None:
    if sys.argv[1:]:  # the number of the process that started this one
        die_with_parent(int(sys.argv[1]))
    devices = {device: asdict(fingerprint(device)) for device in present_devices()}  # kind -> fields of Fingerprint
    modules = [device_module(device) for device in devices if device in GPU_DEVICES]
    gpus = [module.get_device_name(i) for module in modules for i in range(module.device_count())]
    found = {"devices": devices, "gpus": gpus, "cores": len(usable_cores()), "cpu_rates": cpu_rates()}
    found["missing"] = sorted(missing_modules())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
