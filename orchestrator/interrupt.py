"""Handles what ends the command early: Ctrl-C, SIGTERM and SIGHUP.

SIGTERM and SIGHUP come from a scheduler, a container runtime or a closing terminal. In the main thread they raise
KeyboardInterrupt, like Ctrl-C; the exit code says which it was.
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

TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

SAME_SECONDS = 1.0
"""Seconds within which a second signal repeats the first: `timeout` signals the process, then its process group."""

_ended_by: signal.Signals | None = None
"""The first termination signal that this process received."""


class Terminated(KeyboardInterrupt):
    """A termination signal was received.

    A class of its own: after a plain KeyboardInterrupt leaves code run by `exec`, as in the making of every dataclass,
    Python kills itself with SIGINT whatever the exit code.
    """


def handle_termination() -> None:
    """Handle termination signals from now on, unless they are ignored, as under nohup."""
    for number in TERMINATION_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def exit_code() -> int:
    """Return the exit code of an interrupted command: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
    return 128 + (_ended_by or signal.SIGINT)


def cause() -> str:
    """Return what interrupted the command, for a message."""
    return f"ended by {_ended_by.name}" if _ended_by else "interrupted"


def is_terminated() -> bool:
    """Return whether a termination signal was received."""
    return _ended_by is not None


@contextmanager
def postpone_termination() -> Iterator[None]:
    """Inside, postpone termination signals until leaving. Processes started inside never receive them.

    A scheduler signals every process of a job, but this process decides when the others end.
    """
    noted: list[int] = []
    before: dict[int, Any] = {number: signal.getsignal(number) for number in TERMINATION_SIGNALS}

    def note() -> None:
        for number in TERMINATION_SIGNALS:
            if before[number] != signal.SIG_IGN:
                signal.signal(number, lambda number, frame: noted.append(number))

    note()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATION_SIGNALS)
    try:
        yield
    finally:
        note()  # Ray has set its own handler for SIGTERM, which must not receive the postponed signals
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in TERMINATION_SIGNALS:
            signal.signal(number, before[number])
    for heard in noted:
        signal.raise_signal(heard)


@contextmanager
def grace_period(seconds: float, begin: Callable[[str], None]) -> Iterator[None]:
    """Inside, a termination signal calls `begin` with its name and interrupts after this many seconds, or if repeated.

    With 0 seconds it interrupts at once, as usual.
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

    before = {number: signal.signal(number, hear) for number in (*TERMINATION_SIGNALS, signal.SIGALRM)}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def postpone_ctrl_c(what: str) -> Iterator[None]:
    """Inside, postpone Ctrl-C until leaving; pressed again, it interrupts at once. For the main thread."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        say(f"Ctrl-C: waiting for {what}; press it again to stop at once", error=True)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    global _ended_by
    if _ended_by is None:  # later signals must not disturb the clean-up
        _ended_by = signal.Signals(number)
        _leave_terminal(number)
        raise Terminated


def _leave_terminal(number: int) -> None:
    """After SIGHUP, print nowhere: the terminal may be gone."""
    if number == signal.SIGHUP:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            if stat.S_ISCHR(os.fstat(stream).st_mode):
                os.dup2(nowhere, stream)
