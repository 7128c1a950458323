"""NVML sampler: a process that reads the state of one GPU ten times a second while a trial runs on it.

`nvml_sampler.py UUID` runs as a script until its standard input closes. It is a separate process so that no reading
delays the trial, and it imports nothing of lmsweep so that it starts reading at once. Each reading is a line of JSON:
the first is printed immediately, the others at the end.
"""

import json
import select
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TextIO

SAMPLING_SECONDS = 0.1
"""Seconds between two readings."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The state of a GPU at one moment. A field is None if the driver does not report it for this GPU."""

    at: float
    """time.monotonic(), a clock that all processes of a machine share."""
    sm_clock: float | None
    """Clock of the streaming multiprocessors, in Hz."""
    memory_clock: float | None
    """Hz."""
    power: float | None
    """W; on recent GPUs the driver's mean over the last second."""
    temperature: float | None
    """degC."""
    energy: float | None
    """J since the driver was loaded."""
    event_reasons: int | None
    """NVML's clock event reasons: bits that say why the clocks are not higher."""
    processes: int | None
    """Number of processes that can run kernels on the GPU, including the trial's."""


class Nvml:
    """One GPU, read through NVML."""

    def __init__(self, uuid: str) -> None:
        """Find the GPU with this UUID. Raises pynvml.NVMLError if there is no driver or no such GPU."""
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self) -> Reading:
        nvml = self._nvml
        processes = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses)
        return Reading(
            at=time.monotonic(),
            sm_clock=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM, unit=1e6),
            memory_clock=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM, unit=1e6),
            power=self._ask(nvml.nvmlDeviceGetPowerUsage, unit=1e-3),
            temperature=self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU, unit=1.0),
            energy=self._ask(nvml.nvmlDeviceGetTotalEnergyConsumption, unit=1e-3),
            event_reasons=self._ask(nvml.nvmlDeviceGetCurrentClocksEventReasons),
            # A container may hide all processes, even this one.
            processes=len(processes) if processes else None,
        )

    def _ask(self, function: Callable[..., Any], *arguments: Any, unit: float | None = None) -> Any:
        try:
            value = function(self._gpu, *arguments)
        except self._nvml.NVMLError:  # not supported, not permitted or not in this driver
            return None
        return value if unit is None else value * unit


def read_until_closed(read: Callable[[], Reading], closing: TextIO, out: TextIO) -> None:
    """Write the first reading to `out` at once, and all later ones when the stream `closing` closes."""
    print(json.dumps(asdict(read())), file=out, flush=True)
    readings = []
    closed: list[Any] = []
    while not closed:
        closed = select.select([closing], [], [], SAMPLING_SECONDS)[0]
        readings.append(read())
    for reading in readings:
        print(json.dumps(asdict(reading)), file=out)


def main() -> None:
    """Sample the GPU whose UUID is the first argument; print an error as a line of JSON if it cannot be read."""
    import pynvml

    try:
        reader = Nvml(sys.argv[1])
    except pynvml.NVMLError as error:
        print(json.dumps({"error": f"NVML: {error}"}), flush=True)
        return
    read_until_closed(reader.read, sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
