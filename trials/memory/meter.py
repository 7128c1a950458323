"""How much memory is in use, now and at most since the last reset, by what a kind of device can tell."""

import re
from pathlib import Path
from typing import Protocol

import torch

from lmsweep.trials.memory.storage_tracker import StorageTracker


class Meter(Protocol):
    def now(self) -> dict[str, int]:
        """Metric -> bytes in use."""

    def reset_peak(self) -> None:
        """`peak` counts from here."""

    def peak(self) -> dict[str, int]:
        """Metric -> most bytes in use since `reset_peak`; only of metrics of which that is known."""


class CudaMeter:
    """What CUDA's caching allocator was asked for (requested), what it has handed out for that, in blocks (allocated),
    and what it holds of the device (reserved).
    """

    def now(self) -> dict[str, int]:
        return self._statistics("current")

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def peak(self) -> dict[str, int]:
        return self._statistics("peak")

    def _statistics(self, which: str) -> dict[str, int]:
        statistics = torch.cuda.memory_stats()
        return {name: statistics[f"{name}_bytes.all.{which}"] for name in ("allocated", "requested", "reserved")}


class TensorMeter:
    """For devices whose allocator counts little: the bytes of all tensors, where a storage tracker sees them, and what
    MPS says of now.
    """

    def __init__(self, device_type: str, tracker: StorageTracker | None) -> None:
        """`tracker` is None where code is compiled, which no tracker sees."""
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


def resident_bytes() -> tuple[int, int] | None:
    """Bytes of the host's memory that this process has, and the most it has had (VmRSS and VmHWM); None where there is
    no /proc to read them from.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = {name: int(kib) * 1024 for name, kib in re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE)}
    return found["VmRSS"], found["VmHWM"]
