"""A rank that samples the telemetry of its own GPU while it is measured."""

import time

import torch
import torch.distributed as dist

from lmsweep.trials.machine.gpu.accelerator import synchronize
from lmsweep.trials.machine.gpu.telemetry import Watch, gpu_flags
from lmsweep.trials.results.outcome import Flag


class WatchedRank:
    """What every rank of a team can do, whatever it measures."""

    gpu: Watch

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._token = torch.zeros(1, device=device_type)

    def watch(self) -> None:
        """Start sampling the telemetry of this rank's GPU."""
        self.gpu = Watch(self._device_type)
        self.gpu.wait()

    def end_watch(self, *, since_ago: float, until_ago: float) -> tuple[Flag, ...]:
        """Stop sampling; return the flags for the interval between these many seconds ago: hosts have other clocks."""
        now = time.monotonic()
        self.gpu.close()
        return gpu_flags(self.gpu, since=now - since_ago, until=now - until_ago)

    def align(self) -> None:
        """Wait until the devices of all ranks are idle."""
        dist.all_reduce(self._token)
        synchronize(self._device_type)
