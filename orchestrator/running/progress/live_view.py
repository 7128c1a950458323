"""The live view of a run on a terminal: devices, the trials that run there with their phases, flags, time left."""

import time
from collections import Counter
from pathlib import Path

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lmsweep.orchestrator.running.progress.eta import DeviceEta, Eta
from lmsweep.orchestrator.terminal import format_seconds, harmless
from lmsweep.trials.machine.live_phase import read_phase

MOST_RUNNING = 8
"""Running trials of a device that are listed."""

LEAST_LEFT = 1.0
"""Seconds left that are shown at least, until the last trial has ended."""

WORDS = {
    "setup": "setting up",
    "compile": "compiling",
    "warmup": "warming up",
    "measured": "measuring",
    "profiled": "profiling",
    "capture": "capturing",
}
"""Phase that a trial reports -> what the view shows."""


class LiveView:
    """Draws the state of a run, in 80 columns or more."""

    def __init__(self, eta: Eta, names: dict[int, str], phases: Path | None, *, shows_time_left: bool = True) -> None:
        """names: by the index of a trial in the plan. phases: the folder in which trials report theirs, if known."""
        self._shows_time_left = shows_time_left
        self._eta = eta
        self._names = names
        self._phases = phases
        self.phase_names: dict[int, str] = {}
        """File of a trial's phase, by its index in the plan."""
        self.flags: Counter[str] = Counter()

    def draw(self) -> RenderableType:
        parts: list[RenderableType] = []
        now = time.monotonic()
        for device in self._eta.devices.values():
            parts += [self._device(device, now), *self._running(device, now)]
        if self.flags:
            words = ", ".join(f"{count} {flag}" for flag, count in self.flags.most_common())
            parts.append(Text(f"flags: {words}", "yellow", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _device(self, device: DeviceEta, now: float) -> Table:
        ended = device.done + device.failed
        total = ended + len(device.running) + device.left
        line = Table.grid(padding=(0, 2, 0, 0), expand=False)
        for most in (26, 16, 11, 10, None):
            line.add_column(no_wrap=True, overflow="ellipsis", max_width=most)
        left = ""
        if 0 < ended < total and self._shows_time_left:
            left = f"about {format_seconds(max(device.seconds_left(now), LEAST_LEFT))} left"
        if not (ended or device.running):
            left = "starting Ray"
        failed = Text(f"{device.failed} failed", "red") if device.failed else Text()
        bar = ProgressBar(total=max(total, 1), completed=ended, width=16)
        line.add_row(Text(harmless(device.name), "bold"), bar, f"{ended}/{total}", failed, left)
        return line

    def _running(self, device: DeviceEta, now: float) -> list[RenderableType]:
        lines = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for width in (None, 11, 22):
            lines.add_column(no_wrap=True, overflow="ellipsis", width=width, ratio=None if width else 1)
        running = sorted(device.running.items(), key=lambda each: each[1].began)
        for index, trial in running[:MOST_RUNNING]:
            expected = device.corrected(trial.overhead, trial.iterating)
            times = format_seconds(now - trial.began)
            if now - trial.began < expected:
                times += f" of ~{format_seconds(expected)}"
            lines.add_row(Text(f"  {harmless(self._names[index])}"), Text(self._phase(index), "cyan"), times)
        more = len(running) - MOST_RUNNING
        return [lines, *([Text(f"  and {more} more", "dim")] if more > 0 else [])]

    def _phase(self, index: int) -> str:
        if self._phases is None or index not in self.phase_names:
            return ""
        phase = read_phase(self._phases, self.phase_names[index])
        return WORDS.get(phase, phase) if phase else "starting"
