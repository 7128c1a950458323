"""The watchdog of a trial that runs in this very process: a thread that ends the process when the trial's time is up,
or when it holds too much of the host's memory. Elsewhere the trial server does this from outside.
"""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Self

from lmsweep.trials.machine.host_memory import held_by, why_to_end
from lmsweep.trials.results.outcome import Status

WATCH_SECONDS = 0.25
"""Between two looks at the memory that is held."""
PATIENCE = 10.0
"""Seconds after the time is up in which this thread has to end the process; it may wait in vain for Python's lock, and
faulthandler, which needs no lock, then does it without a word but the stack.
"""
STDERR = 2
"""File descriptor for the stack: whatever stands in for sys.stderr, this is the terminal or the log."""
DEBUGGERS = frozenset({"bdb", "pdb", "debugpy", "pydevd", "_pydevd_bundle"})
"""Modules on the main thread's stack while somebody looks at it: the clock stands still meanwhile."""

End = Callable[[Status, str], None]
Show = Callable[[float, int], None]


class Watchdog:
    """Watches while it is entered. Its own thread calls `end` with a status and the reason, and then exits the process:
    with 0 for `oom`, which is a result, else with 1.
    """

    def __init__(self, *, seconds: float, end: End, show: Show = lambda _seconds, _bytes: None) -> None:
        """`show` is told, at each look, for how long the trial has run and how many bytes it holds."""
        self._left = seconds
        self._end = end
        self._show = show
        self._ended = threading.Event()
        self._deciding = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._put_off()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._deciding:  # waits for ever where the thread has decided: it is about to exit the process
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
        """Has faulthandler wait until this thread has failed to do it."""
        faulthandler.dump_traceback_later(max(0.0, self._left) + PATIENCE, exit=True, file=STDERR)

    def _exit(self, reason: str | None) -> None:
        if reason:
            self._end(Status.OOM, reason)
        else:
            faulthandler.dump_traceback(file=STDERR)
            self._end(Status.TIMEOUT, "ended when its time was up")
        os._exit(0 if reason else 1)


def _in_debugger() -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in DEBUGGERS:
            return True
        frame = frame.f_back
    return False
