"""Telemetry: clocks, power, temperature and energy of a GPU, sampled during a trial, and the flags they raise."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import torch

from lmsweep.trials.machine.gpu import nvml_sampler
from lmsweep.trials.machine.gpu.accelerator import is_nvidia
from lmsweep.trials.machine.gpu.nvml_sampler import SAMPLING_SECONDS, Reading
from lmsweep.trials.machine.interpreter import environment, script
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.outcome import Flag, those_that_hold

SAMPLED = {"sm_clock": "Hz", "memory_clock": "Hz", "power": "W", "temperature": "degC", "event_reasons": "1"}
"""Fields of a reading that are stored, and their units."""

THROTTLED = 0x08 | 0x20 | 0x40 | 0x80
"""NVML's clock event reasons: hardware slowdown, software and hardware thermal slowdown, power brake."""
POWER_CAPPED = 0x04
"""NVML's clock event reason for the software power limit."""


class Watch(AbstractContextManager["Watch"]):
    """Samples the GPU of this process from its construction on, with a last reading as the context closes."""

    def __init__(self, device_type: str) -> None:
        self.readings: list[Reading] = []
        self.reason: str | None = None
        """Why there are no readings."""
        self._process: subprocess.Popen[str] | None = None
        if not is_nvidia(device_type):
            self.reason = "NVML reports NVIDIA GPUs only"
            return
        uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        self._process = subprocess.Popen(
            script(nvml_sampler.__file__, uuid),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            text=True,
        )

    def wait(self) -> None:
        if self._process and not self.readings and self.reason is None:
            assert self._process.stdout is not None, "it is a pipe"
            self._take(self._process.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.wait()
        if self._process:
            for line in self._process.communicate()[0].splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        answer = json.loads(line) if line else {"error": "NVML could not be read"}
        if "error" in answer:
            self.reason = answer["error"]
        else:
            self.readings.append(Reading(**answer))


def telemetry_rows(watch: Watch, *, warmup_from: float, since: float, until: float) -> Iterator[Measurement]:
    """Yield a measurement per sampled quantity. All times are of time.monotonic()."""
    during = _during(watch, since, until)
    before = [reading for reading in watch.readings if warmup_from <= reading.at < since - SAMPLING_SECONDS]
    for name, unit in SAMPLED.items():
        samples = _values(during, name)
        reason = watch.reason or ("this driver does not report it" if during else "the iterations ended too soon")
        yield Measurement(
            phase="step",
            metric=name,
            unit=unit,
            samples=samples or None,
            warmup_samples=_values(before, name),
            reason=None if samples else reason,
        )


def gpu_flags(watch: Watch, *, since: float, until: float) -> tuple[Flag, ...]:
    """Return the flags that the readings between `since` and `until` (time.monotonic()) raise."""
    during = _during(watch, since, until)
    events = 0
    for reading in during:
        events |= reading.event_reasons or 0
    found = {
        Flag.THROTTLED: events & THROTTLED,
        Flag.POWER_CAPPED: events & POWER_CAPPED,
        Flag.SHARED_GPU: any((reading.processes or 1) > 1 for reading in during),
    }
    return those_that_hold(found)


def _during(watch: Watch, since: float, until: float) -> list[Reading]:
    """Return the readings of that time and the last one before it, because ten iterations may run between readings."""
    return [reading for reading in watch.readings if since - SAMPLING_SECONDS <= reading.at <= until]


def _values(readings: Sequence[Reading], name: str) -> tuple[float, ...]:
    return tuple(value for reading in readings if (value := getattr(reading, name)) is not None)
