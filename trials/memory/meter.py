"""Meters of memory in use, now and at its peak, for each kind of device."""

import re
from pathlib import Path
from typing import NamedTuple

import torch

from lmsweep.trials.machine.gpu.accelerator import counts_memory, device_module
from lmsweep.trials.memory.storage_tracker import StorageTracker
from lmsweep.trials.spec.config import TrialConfig


class AllocatorMeter:
    """Statistics of the device's caching allocator: bytes requested, allocated for them, and reserved."""

    tracker: StorageTracker | None = None
    """The context in which code must run for the meter to see it, if it needs one."""

    def __init__(self, device_type: str) -> None:
        self._device = device_module(device_type)

    def now(self) -> dict[str, int]:
        """Metric -> bytes in use now."""
        return self._statistics("current")

    def reset_peak(self) -> None:
        self._device.reset_peak_memory_stats()

    def peak(self) -> dict[str, int]:
        """Metric -> most bytes in use since `reset_peak`, for metrics with a known peak."""
        return self._statistics("peak")

    def _statistics(self, which: str) -> dict[str, int]:
        statistics = self._device.memory_stats()
        return {name: statistics[f"{name}_bytes.all.{which}"] for name in ("allocated", "requested", "reserved")}


class TensorMeter:
    """Bytes of all tensors seen by a storage tracker and, on MPS, of the device's counters, which have no peak."""

    def __init__(self, device_type: str, tracker: StorageTracker | None) -> None:
        """`tracker` is None if code is compiled, since a tracker does not see its tensors."""
        self.device_type = device_type
        self.tracker = tracker

    def now(self) -> dict[str, int]:
        held = {"tensors": self.tracker.live} if self.tracker else {}
        if self.device_type == "mps":
            held["allocated"] = torch.mps.current_allocated_memory()
            held["reserved"] = torch.mps.driver_allocated_memory()
        return held

    def reset_peak(self) -> None:
        if self.tracker:
            self.tracker.levels = [self.tracker.live]

    def peak(self) -> dict[str, int]:
        return {"tensors": max(self.tracker.levels)} if self.tracker else {}


Meter = AllocatorMeter | TensorMeter
"""Reads the memory in use on one device."""


def meter_for(config: TrialConfig) -> Meter:
    if counts_memory(config.device_type):
        return AllocatorMeter(config.device_type)
    return TensorMeter(config.device_type, None if config.compiles else StorageTracker(config.device_type))


class ResidentBytes(NamedTuple):
    """Resident memory of a process on the host; None for what it does not state, such as the peak in gVisor."""

    now: int | None
    """VmRSS."""
    peak: int | None
    """VmHWM."""


def resident_bytes() -> ResidentBytes | None:
    """Resident memory of this process; None on systems without /proc."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = {name: int(kib) * 1024 for name, kib in re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE)}
    return ResidentBytes(now=found.get("VmRSS"), peak=found.get("VmHWM"))
