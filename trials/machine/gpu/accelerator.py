"""What the device of a trial can do, asked of PyTorch's module for it: torch.cuda, torch.xpu, torch.mps, torch.cpu.

`cuda` is also what PyTorch calls AMD's GPUs in its builds for ROCm. Of an accelerator with another name lmsweep uses
what its module offers, and gives a reason for what is missing. Only NVIDIA's GPUs have a compute capability and NVML.
"""

import sys
from importlib.util import find_spec
from types import ModuleType

import psutil
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity

from lmsweep.trials.spec.rules.device_rules import CHUNKED_LOSS, OPTIONAL_MODULES, Capabilities, why_no_value


def device_module(device_type: str) -> ModuleType:
    module: ModuleType = torch.get_device_module(device_type)
    return module


def why_absent(device_type: str) -> str:
    """Return why this PyTorch cannot use such a device here, in the driver's words if it has some."""
    built_for = {"cuda": torch.version.cuda or torch.version.hip, "xpu": torch.version.xpu}
    if device_type in built_for and built_for[device_type] is None:
        build = f"torch {torch.__version__} is built without {device_type.upper()}"
        return f"this machine has no {device_type} device that PyTorch can use: {build}"
    said = ""
    if device_type == "cuda":
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:
            said = f": torch {torch.__version__}, built for {torch.version.cuda}, says {str(error).splitlines()[0]}"
    return f"this machine has no {device_type} device{said}"


def device_name(device_type: str) -> str:
    return str(device_module(device_type).get_device_name())


def has_events(device_type: str) -> bool:
    """Return whether the device has streams of work and events that time them. The host's clock times the others."""
    module = device_module(device_type)
    return device_type != "cpu" and hasattr(module, "Event") and hasattr(module, "current_stream")


def synchronize(device_type: str) -> None:
    if device_type != "cpu":
        device_module(device_type).synchronize()


def can_wait(device_type: str) -> bool:
    """Return whether a kernel can keep the device busy for a given time while the host launches others."""
    return has_events(device_type) and hasattr(device_module(device_type), "_sleep")


def counts_memory(device_type: str) -> bool:
    """Return whether PyTorch's allocator counts the bytes in use and their peak."""
    return hasattr(device_module(device_type), "memory_stats")


def free_bytes(device_type: str) -> int | None:
    """Return the bytes that this process can still allocate, on CPU of its address space; None if nothing says so."""
    if device_type == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    if device_type != "cpu" or sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else int(limit - psutil.Process().memory_info().vms)


def l2_cache_bytes(device_type: str) -> int | None:
    """Return the size of the current device's L2 cache; None if PyTorch does not know it."""
    if not has_events(device_type):
        return None
    size: int | None = getattr(device_module(device_type).get_device_properties(), "L2_cache_size", None)
    return size


def activity(device_type: str) -> ProfilerActivity | None:
    """Return what PyTorch's profiler calls work on this accelerator; None if it cannot trace it, and for the host."""
    return None if device_type == "cpu" else ProfilerActivity.__members__.get(device_type.upper())


def has_bfloat16(device_type: str) -> bool:
    """Return whether the device multiplies in bfloat16 without emulation, as far as PyTorch can tell."""
    asked = getattr(device_module(device_type), "is_bf16_supported", None)
    return asked is None or bool(asked(including_emulation=False))


def has_float64(device_type: str) -> bool:
    """Return whether the device has float64. MPS has not, nor have some of Intel's GPUs."""
    if device_type == "mps":
        return False
    return device_type != "xpu" or bool(device_module(device_type).get_device_properties().has_fp64)


def is_nvidia(device_type: str) -> bool:
    """Return whether the device is an NVIDIA GPU, which NVML reports."""
    return device_type == "cuda" and torch.version.hip is None


def compute_capability(device_type: str) -> tuple[int, int]:
    """Return the compute capability of an NVIDIA GPU, else (0, 0): that of an AMD GPU names its architecture."""
    return torch.cuda.get_device_capability() if is_nvidia(device_type) else (0, 0)


def capabilities(device_type: str) -> Capabilities:
    """Return what the current device can compute, as far as PyTorch can tell."""
    name = device_name(device_type) if device_type == "cuda" else f"device: {device_type}"
    return Capabilities(name, compute_capability(device_type), has_bfloat16(device_type), missing_modules())


def why_not_installed(field: str, value: str) -> str | None:
    """Return which module the value of a field needs and this Python does not have, in words; None if it has all."""
    return why_no_value(field, value, Capabilities("this machine", missing=missing_modules()))


def missing_modules() -> frozenset[str]:
    """Return those of OPTIONAL_MODULES that this Python does not have; none of them is imported."""
    has_chunked = hasattr(functional, "linear_cross_entropy")
    return frozenset(
        name for name in OPTIONAL_MODULES if not (has_chunked if name == CHUNKED_LOSS else find_spec(name))
    )
