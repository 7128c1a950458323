"""Shows the progress of a run: a line for each trial, and on a terminal the live view below them."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.planning.plan_estimate import Range
from lmsweep.orchestrator.planning.time_estimate import Took
from lmsweep.orchestrator.running.progress.eta import DeviceEta, Eta
from lmsweep.orchestrator.running.progress.trial_words import outcome
from lmsweep.orchestrator.terminal import OutputError, continuing, folded, format_seconds, harmless, say, time_left
from lmsweep.trials.machine.live_phase import read_phase
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record

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

    def __init__(
        self, eta: Eta, names: Mapping[int, str], phases: Path | None, *, shows_time_left: bool = True
    ) -> None:
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
        with continuing("the state of the run"):
            parts = self._parts()
        return Group(*parts)

    def _parts(self) -> list[RenderableType]:
        parts: list[RenderableType] = []
        now = time.monotonic()
        for device in self._eta.snapshot():
            parts += [self._device(device, now), *self._running(device, now)]
        if self.flags:
            words = ", ".join(f"{-n} {flag}" for n, flag in sorted((-n, flag) for flag, n in self.flags.items()))
            parts.append(Text(f"flags, explained at the end: {words}", "yellow", no_wrap=True, overflow="ellipsis"))
        return parts

    def _device(self, device: DeviceEta, now: float) -> Table:
        ended = device.done + device.failed
        total = ended + len(device.running) + device.left
        line = Table.grid(padding=(0, 2, 0, 0), expand=False)
        for most in (26, 16, 11, 10, None):  # device, bar, 10000/10000, failed, time left
            line.add_column(no_wrap=True, overflow="ellipsis", max_width=most)
        left = ""
        if 0 < ended < total and self._shows_time_left:
            seconds = self._eta.within_time(device.seconds_left(now), now)
            left = f"about {format_seconds(max(seconds, LEAST_LEFT))} left"
        if not (ended or device.running):
            left = "starting Ray"
        failed = Text(f"{device.failed} failed", "red") if device.failed else Text()
        bar = ProgressBar(total=max(total, 1), completed=ended, width=16)
        line.add_row(Text(harmless(device.name), "bold"), bar, f"{ended}/{total}", failed, left)
        return line

    def _running(self, device: DeviceEta, now: float) -> list[RenderableType]:
        lines = Table.grid(padding=(0, 2, 0, 0), expand=True)
        lines.add_column(ratio=1)  # the trial: its name differs from others at its end, too
        for width in (11, 22):  # its phase, `1m30s of ~2m40s`
            lines.add_column(no_wrap=True, overflow="ellipsis", width=width)
        running = sorted(device.running.items(), key=lambda each: each[1].began)
        for index, trial in running[:MOST_RUNNING]:
            expected = device.corrected(trial.parts)
            times = format_seconds(now - trial.began)
            if now - trial.began < expected:
                times += f" of ~{format_seconds(expected)}"
            name = Padding(Text(harmless(self._names[index])), (0, 0, 0, 2))
            lines.add_row(name, Text(self._phase(index), "cyan"), times)
        more = len(running) - MOST_RUNNING
        return [lines, *([Text(f"  and {more} more", "dim")] if more > 0 else [])]

    def _phase(self, index: int) -> str:
        if self._phases is None or index not in self.phase_names:
            return ""
        phase = read_phase(self._phases, self.phase_names[index])
        return WORDS.get(phase, phase) if phase else "starting"


MOST_LINES = 200
"""Lines for trials: a run of at least twice as many trials prints a line only for every second, third, ..."""

MOST_FAILED = 50
"""Failed trials that have a line each, however long the run."""

REFRESHED = 2
"""Times per second that the live view is drawn. The machine is measuring."""

FIRST_TRIALS = 3
"""Trials after which the run's duration is compared with its estimate."""


class RunProgress:
    """Prints a line for each trial that ends, and on a terminal draws the live view below them."""

    def __init__(
        self,
        trials: Sequence[PlannedTrial],
        eta: Eta,
        console: Console | None = None,
        *,
        names: Mapping[int, str],
        phases: Path | None = None,
        is_search: bool = False,
        began: float | None = None,
        expected: Range | None = None,
    ) -> None:
        """names: by the index of a trial in the plan. phases: the folder in which trials report their phases; None if
        they run on other machines. is_search: not all trials will run, so nobody knows how long the run takes. began:
        time.monotonic() at the start of the command. expected: the range that the plan states for its seconds."""
        self._began = time.monotonic() if began is None else began
        self._expected = None if is_search else expected
        self._is_search = is_search
        self._names = names
        self._total = len(trials)
        self._done = self._failed = 0
        self._has_said = False
        self.has_begun = False
        self.eta = eta
        self._every = max(1, self._total // MOST_LINES)
        self._console = console or Console()
        self.view = LiveView(eta, self._names, phases, shows_time_left=not is_search)
        self._live = Live(
            get_renderable=self.view.draw, console=self._console, refresh_per_second=REFRESHED, transient=True
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def started(self, planned: PlannedTrial) -> None:
        self.has_begun = True
        self.view.phase_names[planned.index] = planned.trial_id
        self.eta.started(planned)

    def ended(self, planned: PlannedTrial, rows: list[Record]) -> None:
        failed = any(row.status != Status.OK for row in rows)
        self.eta.ended(planned, None if failed else took_by(rows))
        self._done += 1
        self._failed += failed
        self.view.flags.update(sorted({flag for row in rows for flag in row.flags}))
        if self._done % self._every == 0 or (failed and self._failed <= MOST_FAILED):
            place = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
            with continuing(f"the line of trial {place}"):
                self.say(f"{place} {self.name_of(planned.index)}: {outcome(rows)}{self._counts()}")
        with continuing("the time left"):
            self._compare_with_estimate()

    def cut_short(self, planned: PlannedTrial) -> None:
        self.eta.ended(planned, None)
        self.say(f"{self.name_of(planned.index)}: cut, as the time for the run is over")

    def _counts(self) -> str:
        if self._every == 1:
            return ""
        failed = [f"{self._failed} failed so far"] if self._failed else []
        left = [] if self._is_search else [time_left(self.eta.seconds_left())]
        return f" ({', '.join([*failed, *left])})" if failed or left else ""

    def _compare_with_estimate(self) -> None:
        if self._has_said or self._expected is None or not FIRST_TRIALS <= self._done < self._total:
            return
        left = self.eta.seconds_left()
        whole = time.monotonic() - self._began + left
        if not self._expected.low <= whole <= self._expected.high:
            self._has_said = True
            words = "longer" if whole > self._expected.high else "less time"
            self.say(f"this run takes {words} than estimated: {time_left(left)}")

    def name_of(self, index: int) -> str:
        """Return the name of the trial: the values of the fields in which it differs from others."""
        return self._names[index]

    def say(self, line: str) -> None:
        """Print a line above the live view."""
        try:
            shown = folded(harmless(line), self._console.width) if self._console.is_terminal else harmless(line)
            self._console.print(shown, highlight=False, markup=False, soft_wrap=True)
        except (OutputError, BrokenPipeError, SystemExit) as error:  # SystemExit: how rich answers a broken pipe
            self._console.quiet = True  # a run must not fail because nobody can read its progress
            why = "its reader has gone" if isinstance(error, (BrokenPipeError, SystemExit)) else str(error)
            say(f"lmsweep: cannot write to standard output: {why}; the run continues", error=True)


def took_by(rows: Iterable[Record]) -> Took:
    found: Counter[str] = Counter()
    for row in rows:
        if row.phase == "trial" and row.unit == "s" and row.samples:
            found[str(row.metric)] += sum(row.samples)  # type: ignore[assignment] # seconds
    iterating = sum(found[f"{name}_time"] for name in ("warmup", "measured", "profiled"))
    return Took(overhead=float(found.total() - iterating), iterating=float(iterating))  # all others are overhead
