"""The GPUs of a machine as the driver sees them while nothing is measured. Reading changes nothing, and imports no
torch, so that it tells also of GPUs that torch cannot use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU. None is what this driver does not tell of it."""

    name: str
    driver_version: str
    memory: int | None
    """Bytes."""
    memory_used: int | None
    """Bytes, what the driver itself needs included."""
    processes: int | None
    """Processes that can run kernels on it; a container may hide those outside."""
    utilization: int | None
    """Percent of the last moment in which some kernel ran."""
    temperature: int | None
    """degC."""
    slowdown_temperature: int | None
    """degC from which the hardware lowers the clocks."""
    power_limit: float | None
    """W."""
    default_power_limit: float | None
    """W."""
    persistent: bool | None
    """Whether the driver stays loaded while nobody uses it."""
    partitioned: bool | None
    """Whether it is split into instances (MIG)."""
    ecc: bool | None
    """Whether its memory corrects errors."""
    uncorrected_errors: int | None
    """Errors of its memory that could not be corrected, since the driver was loaded."""


def gpu_states() -> list[GpuState] | str:
    """All GPUs, or why they cannot be read."""
    import pynvml

    try:
        pynvml.nvmlInit()
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        return [_state(pynvml, index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        return f"NVML: {error}"


def _state(nvml: Any, index: int, driver: str) -> GpuState:
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(gpu, *arguments)
        except nvml.NVMLError:  # not supported, not permitted, not in this driver: it does not tell
            return None

    memory = ask(nvml.nvmlDeviceGetMemoryInfo)
    processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses)
    utilization = ask(nvml.nvmlDeviceGetUtilizationRates)
    persistence, mig, ecc = (
        ask(function)
        for function in (nvml.nvmlDeviceGetPersistenceMode, nvml.nvmlDeviceGetMigMode, nvml.nvmlDeviceGetEccMode)
    )
    limit, default_limit = (
        ask(function)
        for function in (nvml.nvmlDeviceGetPowerManagementLimit, nvml.nvmlDeviceGetPowerManagementDefaultLimit)
    )
    return GpuState(
        name=str(nvml.nvmlDeviceGetName(gpu)),
        driver_version=driver,
        memory=memory and int(memory.total),
        memory_used=memory and int(memory.used),
        processes=None if processes is None else len(processes),
        utilization=utilization and int(utilization.gpu),
        temperature=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        slowdown_temperature=ask(nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        power_limit=None if limit is None else limit / 1000,
        default_power_limit=None if default_limit is None else default_limit / 1000,
        persistent=None if persistence is None else bool(persistence),
        partitioned=None if mig is None else bool(mig[0]),
        ecc=None if ecc is None else bool(ecc[0]),
        uncorrected_errors=ask(
            nvml.nvmlDeviceGetTotalEccErrors, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
    )
