"""Runs a trial in the calling process, and ends it when its time or its memory is used up."""

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Self

from lmsweep.orchestrator.features.trial.one_trial import fingerprint_here
from lmsweep.trials.bench.run_trial import run_trial
from lmsweep.trials.code.traceback_text import hung_line
from lmsweep.trials.machine.host_memory import held_by, why_to_end
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Attempt, Record, Row
from lmsweep.trials.spec.config import Trial

WATCH_SECONDS = 0.25
"""Seconds between two checks of the memory that is held."""
PATIENCE = 10.0
"""If the thread cannot run, faulthandler, which needs no interpreter lock, ends the process so long after its time."""
STDERR = 2
"""File descriptor for the stack: the terminal or the log, even if sys.stderr is redirected."""
DEBUGGERS = frozenset({"bdb", "pdb", "debugpy", "pydevd", "_pydevd_bundle"})
"""Modules that show that the main thread is in a debugger. The clock stops meanwhile."""

End = Callable[[Status, str], None]
"""Called with the status and the reason when the trial is ended."""
Show = Callable[[float, int], None]
"""Called with the seconds that the trial has run and the bytes that it holds."""


def run_watched(trial: Trial, report: Callable[[list[Row]], None], show: Show) -> None:
    """Run a trial under a watchdog; call `report` with its rows, or with failures before the process exits."""
    attempt, expected = Attempt.begin(trial), fingerprint_here(trial)
    rows: list[Row] = []

    def end(status: Status, reason: str) -> None:
        if status == Status.TIMEOUT:
            reason = f"{reason}: timeout_seconds is {trial.config.timeout_seconds:g}"
            stack = traceback.format_stack(sys._current_frames().get(threading.main_thread().ident or 0))
            place = hung_line("".join(reversed(stack)), trial.code) if trial.code else None  # the innermost call first
            reason = f"{place}: {reason}" if place else reason
        so_far = list(rows)  # the trial may still add some
        records = [row for row in so_far if isinstance(row, Record)]
        unfinished = [name for name in trial.workloads if name not in {record.workload for record in records}]
        environment = records[-1].fingerprint if records else expected
        report(so_far + [attempt.failure(name, status, reason, environment) for name in unfinished])

    with Watchdog(seconds=trial.config.timeout_seconds, end=end, show=show):
        run_trial(attempt, expected, rows.extend, requested_at=time.monotonic(), start="spawn")
    report(rows)


class Watchdog:
    """Ends the process if the trial in the context takes too long or too much memory. The exit code is 0 for `oom`,
    which is a result, and 1 for a timeout or if `end` fails."""

    def __init__(self, *, seconds: float, end: End, show: Show = lambda _seconds, _bytes: None) -> None:
        self._left = seconds
        self._end = end
        self._show = show
        self._ended = threading.Event()
        self._deciding = threading.Lock()  # who takes it first decides: the end of the trial, or the thread
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._put_off()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._deciding:  # waits forever once the thread has decided to end: it is about to exit the process
            self._ended.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        run, before = 0.0, time.monotonic()
        while not self._ended.wait(min(WATCH_SECONDS, max(0.0, self._left))):
            now = time.monotonic()
            if not _in_debugger():
                run += now - before
                self._left -= now - before
            before = now
            self._put_off()
            self._show(run, held_by(os.getpid()))
            reason = why_to_end(os.getpid())
            if reason or self._left <= 0:
                with self._deciding:
                    if not self._ended.is_set():
                        self._exit(reason)

    def _put_off(self) -> None:
        """Let faulthandler end the process PATIENCE seconds after the trial's time; a later call replaces this one."""
        faulthandler.dump_traceback_later(max(0.0, self._left) + PATIENCE, exit=True, file=STDERR)

    def _exit(self, reason: str | None) -> None:
        code = 1
        try:
            if reason:
                self._end(Status.OOM, reason)
                code = 0
            else:
                faulthandler.dump_traceback(file=STDERR)
                self._end(Status.TIMEOUT, "ended when its time was up")
        except BaseException:  # noqa: BLE001 # such as a full disk; without it, the trial would stay
            traceback.print_exc()
        os._exit(code)


def _in_debugger() -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in DEBUGGERS:
            return True
        frame = frame.f_back
    return False
