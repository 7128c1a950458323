"""The NVIDIA GPUs of a machine as the driver reports them while nothing is measured; needs no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """The state of one GPU. A field is None if the driver does not report it."""

    name: str
    """Such as `NVIDIA H100 80GB HBM3`."""
    driver_version: str
    memory: int | None
    """In bytes."""
    memory_used: int | None
    """Bytes, including those of the driver itself."""
    processes: int | None
    """Processes that can run kernels on the GPU. A container may hide those outside it."""
    utilization: int | None
    """Percent of the driver's last sampling period in which a kernel ran."""
    temperature: int | None
    """degC."""
    slowdown_temperature: int | None
    """Temperature in degC at which the hardware lowers the clocks."""
    power_limit: float | None
    """W."""
    default_power_limit: float | None
    """W."""
    persistent: bool | None
    """Persistence mode: whether the driver stays loaded while no process uses the GPU."""
    partitioned: bool | None
    """Whether the GPU is partitioned into instances (MIG)."""
    ecc: bool | None
    """Whether error-correcting memory is enabled."""
    uncorrected_errors: int | None
    """Uncorrectable memory errors since the driver was loaded."""


@dataclass(frozen=True, kw_only=True)
class GpuInventory:
    gpus: tuple[GpuState, ...] = ()
    """In the driver's order."""
    reason: str | None = None
    """Why the driver could not be asked; None if it answered."""


def gpu_states() -> GpuInventory:
    """Return the state of each GPU, or the reason why NVML cannot be read."""
    import pynvml

    try:
        pynvml.nvmlInit()
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        return GpuInventory(gpus=tuple(_state(pynvml, index, driver) for index in range(pynvml.nvmlDeviceGetCount())))
    except pynvml.NVMLError as error:
        return GpuInventory(reason=f"NVML: {error}")


def _state(nvml: Any, index: int, driver: str) -> GpuState:
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(gpu, *arguments)
        except nvml.NVMLError:  # not supported, not permitted or not in this driver
            return None

    memory = ask(nvml.nvmlDeviceGetMemoryInfo)
    processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses)
    utilization = ask(nvml.nvmlDeviceGetUtilizationRates)
    persistence, mig = ask(nvml.nvmlDeviceGetPersistenceMode), ask(nvml.nvmlDeviceGetMigMode)
    ecc = ask(nvml.nvmlDeviceGetEccMode)
    limit = ask(nvml.nvmlDeviceGetPowerManagementLimit)
    default_limit = ask(nvml.nvmlDeviceGetPowerManagementDefaultLimit)
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
