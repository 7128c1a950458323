"""Progress of a run: a live bar for each device on a terminal, a line per trial elsewhere."""

import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.eta import Pace
from lmsweep.orchestrator.running.out_of_memory import in_short
from lmsweep.orchestrator.terminal import OutputError, format_seconds, harmless, say
from lmsweep.trials.results.outcome import Flag, Status
from lmsweep.trials.results.record import Record
from lmsweep.trials.spec.config import CONFIG_FIELDS, TrialConfig

MOST_LINES = 200
"""A longer run than this prints a line for every so many trials, and for each one that failed."""


FIRST, NOTABLE = 3, 1.3
"""Trials after which it is looked whether the run takes so many times longer than was foreseen, or shorter."""


class RunProgress:
    """Told when trials start and end; says how many are running, done, failed and left, and for how long still."""

    def __init__(self, trials: Sequence[PlannedTrial], pace: Pace, console: Console) -> None:
        self._names = varying_fields(planned.trial.config for planned in trials)
        self._total = len(trials)
        self._done = 0
        self._foreseen = pace.seconds_left()
        self._told = False
        self._began = 0.0  # not yet
        self._pace = pace
        self._every = max(1, self._total // MOST_LINES)
        self._live = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._tasks = {
            name: self._live.add_task(name, total=device.left, detail="starting Ray")
            for name, device in pace.devices.items()
        }

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def started(self, planned: PlannedTrial) -> None:
        if not self._began:
            self._began = time.monotonic()
        self._pace.started(planned)
        self._show(planned.environment.device_name)

    def ended(self, planned: PlannedTrial, rows: list[Record]) -> None:
        failed = any(row.status != Status.OK for row in rows)
        self._pace.ended(planned, iterated=None if failed else iterated_seconds(rows))
        self._done += 1
        if failed or self._total <= MOST_LINES or self._done % self._every == 0:
            place = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
            self.say(f"{place} {describe(planned.trial.config, self._names)}: {outcome(rows)}")
        self._say_if_slow()
        self._show(planned.environment.device_name)

    def _say_if_slow(self) -> None:
        """Once, where trials turn out to take longer, or less long, than was foreseen."""
        if self._told or self._done < FIRST:
            return
        left = self._pace.seconds_left()
        whole = time.monotonic() - self._began + left
        if left and not self._foreseen / NOTABLE < whole < self._foreseen * NOTABLE:
            self._told = True
            words = "longer" if whole > self._foreseen else "less long"
            self.say(f"trials take {words} here than was foreseen: about {format_seconds(left)} to go")

    def say(self, line: str) -> None:
        """Prints a line above the bars."""
        try:
            self._live.console.print(harmless(line), highlight=False, markup=False, soft_wrap=True)
        except (OutputError, BrokenPipeError) as error:  # results are worth more than words about them
            self._live.console.quiet = True
            say(f"lmsweep: cannot write to standard output: {error}; the run goes on", error=True)

    def _show(self, device_name: str) -> None:
        if self._live.disable:
            return
        device = self._pace.devices[device_name]
        detail = f"{len(device.running)} running, {device.failed} failed, {device.left} left"
        if self._done:
            detail += f", about {format_seconds(self._pace.seconds_left())} to go"
        self._live.update(self._tasks[device_name], completed=device.done + device.failed, detail=detail)


def iterated_seconds(rows: Iterable[Record]) -> float:
    """Seconds in which a trial iterated, by its rows."""
    names = ("warmup_time", "measured_time")
    return sum(sum(row.samples or ()) for row in rows if row.phase == "trial" and row.metric in names)


def varying_fields(configs: Iterable[TrialConfig]) -> list[str]:
    """The configuration fields, the dimensions of named models apart, in which these trials differ."""
    values: dict[str, set[object]] = {}
    dimensions = ("d_model", "d_ff", "num_layers", "num_heads")
    for config in configs:
        for name in CONFIG_FIELDS:
            if name not in dimensions or config.model is None:
                values.setdefault(name, set()).add(getattr(config, name))
    return [name for name, seen in values.items() if len(seen) > 1]


def describe(config: TrialConfig, names: Sequence[str]) -> str:
    """A trial in a few words: the values that it has of these fields."""
    values = {name: getattr(config, name) for name in names}
    words = [f"{name} {value}" for name, value in values.items() if value is not None]
    return ", ".join(words) or config.model or "trial"


def outcome(rows: list[Record]) -> str:
    """What became of a trial, in a few words."""
    failures = [row for row in rows if row.status != Status.OK]
    if failures:
        if failures[0].status == Status.TIMEOUT:  # its last words are the stack of what hung
            return f"timeout after {format_seconds(failures[0].config.timeout_seconds)}"
        if failures[0].status == Status.OOM:
            return f"oom: {in_short(failures[0].error or '')}"
        reason = (failures[0].error or "").strip().splitlines()
        return f"{failures[0].status}: {reason[-1]}" if reason else str(failures[0].status)
    times = {row.phase: statistics.median(row.samples) for row in rows if row.metric == "time" and row.samples}
    if "step" in times:
        words = f"{format_seconds(times['step'])} per step"
    else:
        words = ", ".join(f"{phase} {format_seconds(seconds)}" for phase, seconds in times.items()) or "ok"
    flags = {flag for row in rows for flag in row.flags}
    worked = [row.samples for row in rows if (row.phase, row.metric) == ("step", "device_time") and row.samples]
    if Flag.HOST_BOUND in flags and worked and "step" in times:
        words += f", in {1 - statistics.median(worked[0]) / times['step']:.0%} of which the GPU waited"
    return words + (", on a busy host" if Flag.BUSY_HOST in flags else "")
