"""Progress of a run: a live bar on a terminal, a line per trial elsewhere."""

import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from orchestrator.plan import PlannedTrial
from trials.record import Record
from trials.spec import CONFIG_FIELDS, Status, TrialConfig

MOST_LINES = 200
"""A longer run than this prints a line for every so many trials, and for each one that failed."""


class RunProgress:
    """Told when trials start and end; says how many are done, running and left, and for how long still."""

    def __init__(self, trials: Sequence[PlannedTrial], console: Console) -> None:
        self._names = varying_fields(planned.trial.config for planned in trials)
        self._total = len(trials)
        self._running: set[int] = set()
        self._ended: set[int] = set()
        self._begin = time.monotonic()
        self._console = console
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
        self._task = self._live.add_task("trials", total=self._total, detail="starting Ray")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def started(self, planned: PlannedTrial) -> None:
        self._running.add(id(planned))
        self._show()

    def ended(self, planned: PlannedTrial, rows: list[Record]) -> None:
        self._running.discard(id(planned))
        self._ended.add(id(planned))
        done = len(self._ended)
        failed = any(row.status != Status.OK for row in rows)
        if failed or self._total <= MOST_LINES or done % self._every == 0:
            place = f"[{done:>{len(str(self._total))}}/{self._total}]"
            name = describe(planned.trial.config, self._names)
            self._live.console.print(f"{place} {name}: {outcome(rows)}", highlight=False, markup=False, soft_wrap=True)
        self._show()

    def _show(self) -> None:
        done, running = len(self._ended), len(self._running)
        detail = f"{running} running, {self._total - done - running} left"
        if done:
            seconds = (time.monotonic() - self._begin) / done * (self._total - done)
            detail += f", about {format_seconds(seconds)} to go"
        self._live.update(self._task, completed=done, detail=detail)


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
    """A trial in a few words: its values of these fields."""
    return ", ".join(f"{name} {getattr(config, name)}" for name in names) or config.model or "trial"


def outcome(rows: list[Record]) -> str:
    """What became of a trial, in a few words."""
    failures = [row for row in rows if row.status != Status.OK]
    if failures:
        reason = (failures[0].error or "").strip().splitlines()
        return f"{failures[0].status}: {reason[-1]}" if reason else str(failures[0].status)
    times = {row.phase: statistics.median(row.samples) for row in rows if row.metric == "time" and row.samples}
    if "step" in times:
        return f"{format_seconds(times['step'])} per step"
    return ", ".join(f"{phase} {format_seconds(seconds)}" for phase, seconds in times.items()) or "ok"


def format_seconds(seconds: float) -> str:
    """1 h 05 min, 2 min 10 s, 12.3 s, 4.56 ms, ..."""
    if seconds >= 3600:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:02.0f} min"
    if seconds >= 60:
        return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
