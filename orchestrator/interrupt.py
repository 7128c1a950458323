"""What ends the command early: Ctrl-C, and SIGTERM or SIGHUP, which a scheduler, a container or a closing terminal
sends.

SIGTERM and SIGHUP are KeyboardInterrupt in the main thread, like Ctrl-C, and the exit code says which it was.
"""

import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from lmsweep.orchestrator.terminal import say

ENDINGS = (signal.SIGTERM, signal.SIGHUP)

SAME_SECONDS = 1.0
"""Within this time a second signal is the first one's echo: `timeout` sends it to the process, then to its group."""

_ended_by: signal.Signals | None = None
"""The signal that ends this process: one of ENDINGS, of which the first counts."""


class Ended(KeyboardInterrupt):
    """One of ENDINGS. Python ends itself by SIGINT, whatever exit code is asked for, where a plain KeyboardInterrupt
    has left a string that `exec` runs, as every dataclass is made by one.
    """


def heed_endings() -> None:
    """From now on ENDINGS are heard, unless whoever started this process has them ignored, as nohup does."""
    for number in ENDINGS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def exit_code() -> int:
    """Of a command that was interrupted: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
    return 128 + (_ended_by or signal.SIGINT)


def words() -> str:
    """What happened to a command that was interrupted."""
    return f"ended by {_ended_by.name}" if _ended_by else "interrupted"


def ended() -> bool:
    """Whether one of ENDINGS has come."""
    return _ended_by is not None


@contextmanager
def endings_wait() -> Iterator[None]:
    """Inside, ENDINGS are noted, and heeded at the end. What is started inside never hears them, whoever they are sent
    to: a scheduler signals every process of a job, but it is for this one to say when the others end.
    """
    noted: list[int] = []
    before: dict[int, Any] = {number: signal.getsignal(number) for number in ENDINGS}

    def note() -> None:
        for number in ENDINGS:
            if before[number] != signal.SIG_IGN:
                signal.signal(number, lambda number, frame: noted.append(number))

    note()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        note()  # Ray has set its own for SIGTERM, which must not hear what has waited
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in ENDINGS:
            signal.signal(number, before[number])
    for heard in noted:
        signal.raise_signal(heard)


@contextmanager
def grace_period(seconds: float, begin: Callable[[str], None]) -> Iterator[None]:
    """Inside, ENDINGS call `begin` with the signal's name, and interrupt so many seconds later, or when they come
    again. With 0 seconds they interrupt at once, as ever.
    """
    if not seconds:
        yield
        return
    began: float | None = None

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal began
        global _ended_by
        if began is None:
            began, _ended_by = time.monotonic(), signal.Signals(number)
            _leave_terminal(number)
            begin(_ended_by.name)
            signal.setitimer(signal.ITIMER_REAL, seconds)
        elif number == signal.SIGALRM or time.monotonic() > began + SAME_SECONDS:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, hear) for number in (*ENDINGS, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ctrl_c_waits(what: str) -> Iterator[None]:
    """Inside, Ctrl-C is KeyboardInterrupt only at the end; pressed again, it is at once. For the main thread."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        say(f"Ctrl-C: {what} is finished first; press it again to end at once", error=True)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    global _ended_by
    if _ended_by is None:  # what comes later must not disturb the end
        _ended_by = signal.Signals(number)
        _leave_terminal(number)
        raise Ended


def _leave_terminal(number: int) -> None:
    """After SIGHUP there may be no terminal to print to any more."""
    if number == signal.SIGHUP:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            if stat.S_ISCHR(os.fstat(stream).st_mode):
                os.dup2(nowhere, stream)
