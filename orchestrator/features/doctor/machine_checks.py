"""What would distort measurements on the cores and GPUs of a machine, and the records of what is found."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import psutil

from lmsweep.orchestrator.features.doctor.gpu_inventory import GpuState, gpu_states
from lmsweep.trials.machine.cgroups import limits_of_groups
from lmsweep.trials.machine.cpu_affinity import usable_cores
from lmsweep.trials.spec.quantities import gib

FEW_CORES = 4
"""Cores per GPU below which kernel launches, compilation and clock sampling disturb each other."""
IDLE_CORES, IDLE_SHARE = 0.5, 0.1
"""A machine counts as idle up to so many busy cores, or up to this share of its usable ones if that is more."""
LOOK_SECONDS = 0.5
"""Seconds over which busy cores are averaged."""
NEAR_SLOWDOWN = 15
"""A GPU that does nothing yet should be at least this many degrees below the temperature at which it throttles."""

State = Literal["ok", "warning", "fails"]


@dataclass(frozen=True)
class Found:
    """The result of one check."""

    check: str
    finding: str
    state: State = "ok"
    """fails: the node says that it has GPUs which trials there could not use."""
    advice: str | None = None
    """null if it is ok."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    node: str | None
    """Its address; null for this machine."""
    findings: list[Found]


@dataclass(frozen=True, kw_only=True)
class DoctorOutput:
    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}
    nodes: list[Examined]


def unless(is_fine: bool, check: str, finding: str, advice: str) -> Found:
    """Return what was found: a warning with this advice, unless it is fine."""
    return Found(check, finding) if is_fine else Found(check, finding, "warning", advice)


def cores() -> Iterator[Found]:
    usable, gpus = len(usable_cores()), len(gpu_states().gpus)
    for_each = f" for {gpus} GPU{'s' * (gpus > 1)}" if gpus else ""
    yield unless(
        usable >= FEW_CORES * max(gpus, 1),
        "cores",
        f"{usable} of {os.cpu_count()}{for_each}",
        f"Fewer than {FEW_CORES} cores per trial: expect noise and, on a GPU, results flagged host_bound.",
    )
    # In a virtual machine, the system can count more idle time than has passed.
    busy = max(0.0, psutil.cpu_percent(interval=LOOK_SECONDS)) / 100 * (os.cpu_count() or 1)
    advice = "Other processes are running and slow measurements down. Stop them, or wait until they end."
    yield unless(busy <= max(IDLE_CORES, IDLE_SHARE * usable), "busy cores", f"{busy:.1f}", advice)
    if quotas := cpu_quotas():
        advice = "A CPU quota pauses processes within an iteration. Give the container whole cores (cpuset) instead."
        is_free = min(quotas) >= (os.cpu_count() or 1)
        yield unless(is_free, "container CPU quota", "none" if is_free else f"{min(quotas):g} cores", advice)


def cpu_quotas() -> list[float]:
    """Return the CPU quotas of the control groups of this process, in cores."""
    quotas, periods = (limits_of_groups("cpu", f"cpu.cfs_{name}_us", version=1) for name in ("quota", "period"))
    pairs = [[quota, period] for quota, period in zip(quotas, periods, strict=True)]
    pairs += [text.split() for text in limits_of_groups("cpu", "cpu.max", version=2)]
    return [int(quota) / int(period) for quota, period in pairs if quota.isdecimal()]  # `max` and -1: no quota


def gpu_findings(gpu: GpuState) -> Iterator[Found]:
    """What NVML reports about a GPU besides its name."""
    if gpu.memory is not None and gpu.memory_used is not None:
        processes = "?" if gpu.processes is None else gpu.processes
        found = f"{processes} processes, {gib(gpu.memory_used)}, {gpu.utilization} % busy"
        advice = "Other processes take its memory and time: stop them (nvidia-smi lists them)."
        yield unless(not (gpu.processes or gpu.utilization), "other processes", found, advice)
    if gpu.partitioned:
        advice = "A trial gets one MIG instance, so the datasheet's peak does not apply to it."
        yield Found("MIG", "on", "warning", advice)
    if gpu.persistent is False:
        advice = "The first trial waits for the driver to load. Turn it on with: sudo nvidia-smi -pm 1"
        yield Found("persistence mode", "off", "warning", advice)
    if gpu.temperature is not None and gpu.slowdown_temperature is not None:
        found = f"{gpu.temperature} degC; throttles at {gpu.slowdown_temperature} degC"
        advice = "Close to throttling before anything runs: check the cooling."
        yield unless(gpu.temperature <= gpu.slowdown_temperature - NEAR_SLOWDOWN, "temperature", found, advice)
    if gpu.power_limit is not None and gpu.default_power_limit is not None:
        found = f"{gpu.power_limit:.0f} W of {gpu.default_power_limit:.0f} W by default"
        advice = "Below the default: expect results flagged power_capped."
        yield unless(gpu.power_limit >= gpu.default_power_limit, "power limit", found, advice)
    if gpu.uncorrected_errors and gpu.ecc is not None:
        found = f"{'on' if gpu.ecc else 'off'}, {gpu.uncorrected_errors} uncorrected errors"
        yield Found("ECC", found, "warning", "Its memory is failing: replace the GPU.")
    elif gpu.ecc is not None:
        advice = "ECC is off: compare results only with GPUs that have the same setting."
        yield unless(gpu.ecc, "ECC", "on" if gpu.ecc else "off", advice)


def machine_findings() -> list[tuple[str, Found]]:
    """Return what was found, each with what it is about: `host`, or `GPU 0`."""
    found = [("host", one) for one in cores()]
    return found + [(f"GPU {i}", one) for i, gpu in enumerate(gpu_states().gpus) for one in gpu_findings(gpu)]
