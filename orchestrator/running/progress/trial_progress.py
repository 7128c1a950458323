"""Shows the progress of a run: a line for each trial, and on a terminal the live view below them."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.live import Live

from lmsweep.orchestrator.planning.plan import PlannedTrial
from lmsweep.orchestrator.running.progress.eta import Eta
from lmsweep.orchestrator.running.progress.live_view import LiveView
from lmsweep.orchestrator.running.progress.trial_words import descriptions, outcome
from lmsweep.orchestrator.terminal import OutputError, folded, harmless, say, time_left
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Record

MOST_LINES = 200
"""Lines for trials: a longer run prints one for every few of them, with counts."""

MOST_FAILED = 50
"""Failed trials that have a line each, however long the run."""

REFRESHED = 2
"""Times per second that the live view is drawn. The machine is measuring."""

FIRST_TRIALS = 3
"""Trials after which the run's duration is compared with its estimate."""
NOTABLE_RATIO = 1.3
"""Smallest ratio of duration and estimate, in either direction, that the run reports."""


class RunProgress:
    """Prints a line for each trial that ends, and on a terminal draws the live view below them."""

    def __init__(
        self,
        trials: Sequence[PlannedTrial],
        eta: Eta,
        console: Console | None = None,
        *,
        phases: Path | None = None,
        is_search: bool = False,
    ) -> None:
        """phases: the folder in which trials report their phases; None if they run on other machines. is_search: not
        all trials will run, so nobody knows how long the run takes.
        """
        self._is_search = is_search
        self._described = descriptions(trials)
        self._total = len(trials)
        self._done = self._failed = 0
        self._estimated = eta.seconds_left()
        self._has_said = False
        self._began = 0.0  # no trial has begun
        self.eta = eta
        self._every = max(1, self._total // MOST_LINES)
        self._console = console or Console()
        self.view = LiveView(eta, self._described, phases, shows_time_left=not is_search)
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
        if not self._began:
            self._began = time.monotonic()
        self.view.phase_names[planned.index] = planned.trial_id
        self.eta.started(planned)

    def ended(self, planned: PlannedTrial, rows: list[Record]) -> None:
        failed = any(row.status != Status.OK for row in rows)
        self.eta.ended(planned, iterated=None if failed else iterated_seconds(rows))
        self._done += 1
        self._failed += failed
        self.view.flags.update({flag for row in rows for flag in row.flags})
        if self._done % self._every == 0 or (failed and self._failed <= MOST_FAILED):
            place = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
            which = f", process {planned.process} of {count}" if (count := planned.trial.config.processes) > 1 else ""
            self.say(f"{place} {self._described[planned.index]}{which}: {outcome(rows)}{self._counts()}")
        self._compare_with_estimate()

    def cut_short(self, planned: PlannedTrial) -> None:
        self.eta.ended(planned, iterated=None)
        self._done += 1
        self.say(f"{self.name_of(planned.index)}: ended at twice its estimate, as the time for the run is over")

    def _counts(self) -> str:
        if self._every == 1:
            return ""
        failed = [f"{self._failed} failed so far"] if self._failed else []
        left = [] if self._is_search else [time_left(self.eta.seconds_left())]
        return f" ({', '.join([*failed, *left])})" if failed or left else ""

    def _compare_with_estimate(self) -> None:
        if self._has_said or self._is_search or not FIRST_TRIALS <= self._done < self._total:
            return
        left = self.eta.seconds_left()
        whole = time.monotonic() - self._began + left
        if not self._estimated / NOTABLE_RATIO < whole < self._estimated * NOTABLE_RATIO:
            self._has_said = True
            words = "longer" if whole > self._estimated else "less time"
            self.say(f"trials take {words} than estimated: {time_left(left)}")

    def name_of(self, index: int) -> str:
        """Return the values of the fields in which trials differ."""
        return self._described[index]

    def say(self, line: str) -> None:
        """Print a line above the live view."""
        try:
            shown = folded(harmless(line), self._console.width) if self._console.is_terminal else harmless(line)
            self._console.print(shown, highlight=False, markup=False, soft_wrap=True)
        except (OutputError, BrokenPipeError, SystemExit) as error:  # SystemExit: how rich answers a broken pipe
            self._console.quiet = True  # a run must not fail because nobody can read its progress
            why = "its reader has gone" if isinstance(error, (BrokenPipeError, SystemExit)) else str(error)
            say(f"lmsweep: cannot write to standard output: {why}; the run continues", error=True)


def iterated_seconds(rows: Iterable[Record]) -> float:
    """Return the seconds of a trial's iterations, warm-up included, from its rows."""
    names = ("warmup_time", "measured_time")
    return sum(sum(row.samples or ()) for row in rows if row.phase == "trial" and row.metric in names)
