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

    def ask(function: Callable[..., Any], *arguments: Any, as_: Callable[[Any], Any] = lambda answer: answer) -> Any:
        try:
            return as_(function(gpu, *arguments))
        except nvml.NVMLError:  # not supported, not permitted or not in this driver
            return None

    return GpuState(
        name=str(nvml.nvmlDeviceGetName(gpu)),
        driver_version=driver,
        memory=ask(nvml.nvmlDeviceGetMemoryInfo, as_=lambda memory: int(memory.total)),
        memory_used=ask(nvml.nvmlDeviceGetMemoryInfo, as_=lambda memory: int(memory.used)),
        processes=ask(nvml.nvmlDeviceGetComputeRunningProcesses, as_=len),
        utilization=ask(nvml.nvmlDeviceGetUtilizationRates, as_=lambda rates: int(rates.gpu)),
        temperature=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        slowdown_temperature=ask(nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        power_limit=ask(nvml.nvmlDeviceGetPowerManagementLimit, as_=lambda limit: limit / 1000),  # from milliwatts
        default_power_limit=ask(nvml.nvmlDeviceGetPowerManagementDefaultLimit, as_=lambda limit: limit / 1000),
        persistent=ask(nvml.nvmlDeviceGetPersistenceMode, as_=bool),
        partitioned=ask(nvml.nvmlDeviceGetMigMode, as_=lambda modes: bool(modes[0])),  # the current mode, then the next
        ecc=ask(nvml.nvmlDeviceGetEccMode, as_=lambda modes: bool(modes[0])),
        uncorrected_errors=ask(
            nvml.nvmlDeviceGetTotalEccErrors, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
    )
