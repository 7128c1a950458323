"""Handles what ends the command early: Ctrl-C and termination signals.

In the main thread they raise KeyboardInterrupt; the exit code says which it was. SIGQUIT also prints all stacks.
"""

import faulthandler
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from lmsweep.orchestrator.terminal import say

TERMINATION_SIGNALS = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,  # schedulers announce the end of a job by one of these three
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGQUIT,  # Ctrl-\ in a terminal
)

SAME_SECONDS = 1.0
"""Seconds within which a second signal repeats the first: `timeout` signals the process, then its process group."""

HEARD_SECONDS = 0.5
"""Seconds by which the last resort may learn of a signal later than the main thread."""
POSTPONE_SECONDS = 1.0
"""How long Ctrl-C waits for what is better not interrupted."""
END_SECONDS = 10.0
"""How long a signal waits for the main thread, and an interrupted run for Ray and the store."""

_ended_by: signal.Signals | None = None
"""The first termination signal that this process received."""


class Terminated(KeyboardInterrupt):
    """A termination signal was received.

    A class of its own: after a plain KeyboardInterrupt leaves code run by `exec`, as in the making of every dataclass,
    Python kills itself with SIGINT whatever the exit code.
    """


class RayFailedError(Exception):
    """Ray does not start, has ended or does not answer; the message says what happened."""


def handle_termination() -> None:
    """Handle termination signals from now on, unless they are ignored, as under nohup."""
    LastResort.start()
    for number in TERMINATION_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            handle(number, _terminate)


def handle(number: int, handler: Callable[[int, FrameType | None], object]) -> None:
    """Handle a signal, and note when the main thread has heard it."""

    def hear(number: int, frame: FrameType | None) -> None:
        LastResort.heard_at = time.monotonic()
        _print_stacks(number)
        handler(number, frame)

    hear.informs_last_resort = True  # type: ignore[attr-defined]
    signal.signal(number, hear)


@contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in numbers}
    for number in before:
        handle(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class LastResort:
    """A thread that ends the process if the main thread hangs: Python runs handlers of signals only there.

    A signal arrives, and this thread learns of it: at once from Python's handler in C, which writes its number to the
    socket, or within SAME_SECONDS from `sigpending`, if the thread that the kernel has chosen for it hangs.
    Then the main thread hears it, and this thread forgets it; or else the process ends, END_SECONDS later.
    A main thread that has heard it may hang in its clean-up: it calls `end_soon` first, which ends the process anyway.
    """

    heard_at = 0.0
    """time.monotonic() when the main thread last heard a signal."""
    words = ""
    """What it prints after its reason: what is kept, and the command that resumes."""
    _end_at: float | None = None
    _reason: str | None = None
    _wake: socket.socket | None = None

    @classmethod
    def start(cls) -> None:
        if cls._wake:
            return
        ears, cls._wake = socket.socketpair()
        cls._wake.setblocking(False)
        signal.set_wakeup_fd(cls._wake.fileno(), warn_on_full_buffer=False)
        ears.settimeout(SAME_SECONDS)  # so `_watch` looks at pending signals and the time at least that often
        # The thread inherits the mask: no signal is delivered to it, and sigpending has those that nobody takes.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *TERMINATION_SIGNALS))
        threading.Thread(target=cls._watch, args=(ears,), name="last resort", daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    @classmethod
    def end_soon(cls, reason: str | None = None) -> None:
        """End this process, if it is the command, in END_SECONDS. reason: why it fails; None: it was interrupted."""
        if cls._wake:
            cls._end_at = cls._end_at or time.monotonic() + END_SECONDS
            cls._reason = cls._reason or reason
            cls._wake.send(b"\0")

    @classmethod
    def _watch(cls, ears: socket.socket) -> None:
        unheard: dict[int, float] = {}  # signal -> when this thread learned of it
        while True:
            numbers: set[int] = set()
            with suppress(TimeoutError):
                numbers = set(ears.recv(64))  # a byte is the number of a signal; `end_soon` sends 0
            for number in filter(_is_ours, numbers | signal.sigpending()):
                unheard.setdefault(number, time.monotonic())
            if cls._end_at and time.monotonic() > cls._end_at:
                cls._end(_ended_by or signal.SIGINT)
            for number, learned_at in list(unheard.items()):
                # The main thread may hear a signal shortly before this thread learns of it.
                if cls.heard_at >= learned_at - HEARD_SECONDS:
                    del unheard[number]
                elif time.monotonic() > learned_at + END_SECONDS:
                    cls._end(number)

    @classmethod
    def _end(cls, number: int) -> None:
        _print_stacks(number)
        cause = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        what = cls._reason or f"{cause}; what it waited for did not answer within {END_SECONDS:g} s"
        os.write(2, f"\nlmsweep: {what}{cls.words and f'; {cls.words}'}\n".encode(errors="replace"))
        os._exit(1 if cls._reason else 128 + number)


def _is_ours(number: int) -> bool:
    return bool(number) and hasattr(signal.getsignal(number), "informs_last_resort")


def exit_code() -> int:
    """Return the exit code of an interrupted command: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (_ended_by or signal.SIGINT)


def cause() -> str:
    return f"ended by {_ended_by.name}" if _ended_by else "interrupted"


@contextmanager
def postpone_termination() -> Iterator[None]:
    """Inside, postpone termination signals until leaving.

    Processes started inside inherit the block: a scheduler signals each process of a job, but this one ends the others.
    """
    postponed: list[int] = []

    def postpone(number: int, frame: FrameType | None) -> None:
        postponed.append(number)
        LastResort.end_soon()

    before: dict[int, Any] = {number: signal.getsignal(number) for number in TERMINATION_SIGNALS}

    def postpone_all() -> None:
        for number in TERMINATION_SIGNALS:
            if before[number] != signal.SIG_IGN:
                handle(number, postpone)

    postpone_all()  # the block below is of this thread: what another thread receives calls `postpone` at once
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATION_SIGNALS)
    try:
        yield
    finally:
        postpone_all()  # Ray has set its own handler for SIGTERM, which must not receive the blocked signals
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # `postpone` receives them here
        for number in TERMINATION_SIGNALS:
            signal.signal(number, before[number])
    for received in postponed:
        signal.raise_signal(received)  # for the handlers from before; not if an exception ends the command anyway


@contextmanager
def grace_period(seconds: float, begin: Callable[[str], None]) -> Iterator[None]:
    """Inside, a termination signal calls `begin` with its name, and interrupts after this many seconds or if repeated.

    SIGQUIT, and each with 0 seconds, interrupts at once.
    """
    if not seconds:
        yield
        return
    began: float | None = None

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal began
        global _ended_by
        if number == signal.SIGQUIT:
            _ended_by = _ended_by or signal.SIGQUIT
            raise Terminated
        if began is None:
            began, _ended_by = time.monotonic(), signal.Signals(number)
            _leave_terminal(number)
            begin(_ended_by.name)
            signal.setitimer(signal.ITIMER_REAL, seconds)
        elif time.monotonic() >= began + min(seconds, SAME_SECONDS):  # repeated, or SIGALRM, of even a short timer
            raise Terminated

    heard = [number for number in TERMINATION_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    with handled({*heard, signal.SIGALRM}, hear):
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def postpone_ctrl_c(what: str) -> Iterator[None]:
    """Inside, postpone Ctrl-C in the main thread until leaving, but not for long. Pressed again, it interrupts."""
    main_thread = threading.get_ident()
    timers: list[threading.Timer] = []

    def press(number: int, frame: FrameType | None) -> None:
        if timers:  # pressed again, by the user or by the timer
            raise KeyboardInterrupt
        timers.append(threading.Timer(POSTPONE_SECONDS, signal.pthread_kill, (main_thread, signal.SIGINT)))
        timers[0].daemon = True
        timers[0].start()
        say(f"Ctrl-C: waiting for {what}; press it again to stop at once", error=True)

    try:
        with handled([signal.SIGINT], press):
            yield
    finally:
        for timer in timers:
            timer.cancel()
    if timers:
        raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
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


def _print_stacks(number: int) -> None:
    if number == signal.SIGQUIT:
        faulthandler.dump_traceback(2)
