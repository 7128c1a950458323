"""NVML: what the driver knows of a GPU while a trial runs on it. Reading changes nothing.

Run as a script, `nvml_sampler.py UUID` reads ten times a second until its standard input closes. It is a process of
its own, so that no reading can hold up the trial, and imports nothing of the project, so that it begins to read at
once. Each reading is a line of JSON: the first is printed when it is taken, the others at the end.
"""

import json
import select
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TextIO

PERIOD = 0.1
"""Seconds between two readings."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The state of a GPU at one moment. None is what this driver does not tell of this GPU."""

    at: float
    """time.monotonic() of the reading, the same clock in all processes of a machine."""
    sm_clock: float | None
    """Hz, of the multiprocessors."""
    memory_clock: float | None
    """Hz."""
    power: float | None
    """W; on recent GPUs the driver's mean of the last second."""
    temperature: float | None
    """degC, of the chip."""
    energy: float | None
    """J since the driver was loaded."""
    event_reasons: int | None
    """NVML's bits for why the clocks are not higher."""
    processes: int | None
    """Processes that can run kernels on the GPU, this trial's among them."""


class Reader(Protocol):
    def read(self) -> Reading: ...


class Nvml:
    """One GPU, by its UUID. Raises pynvml.NVMLError where there is no driver or no such GPU."""

    def __init__(self, uuid: str) -> None:
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
            # A container may hide every process, even the one that asks.
            processes=len(processes) if processes else None,
        )

    def _ask(self, function: Callable[..., Any], *arguments: Any, unit: float | None = None) -> Any:
        try:
            value = function(self._gpu, *arguments)
        except self._nvml.NVMLError:  # not supported, not permitted, not in this driver: it does not tell
            return None
        return value if unit is None else value * unit


def read_until_closed(reader: Reader, told: TextIO, out: TextIO) -> None:
    """Writes the first reading at once and, when the stream `told` closes, all that have been made since."""
    print(json.dumps(asdict(reader.read())), file=out, flush=True)
    readings = []
    closed: list[Any] = []
    while not closed:
        closed = select.select([told], [], [], PERIOD)[0]
        readings.append(reader.read())
    for reading in readings:
        print(json.dumps(asdict(reading)), file=out)


def main() -> None:
    import pynvml

    try:
        reader = Nvml(sys.argv[1])
    except pynvml.NVMLError as error:
        print(json.dumps({"error": f"NVML: {error}"}), flush=True)
        return
    read_until_closed(reader, sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
