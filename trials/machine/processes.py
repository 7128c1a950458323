"""Processes: they die with their parent, are killed as a group, and stay on their cores."""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import NoReturn

import psutil

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that this process gets when its parent dies."""

CLOSED_ITS_OUTPUT = 97
"""Exit code of a process whose code has closed the connection for its result."""

POLL_SECONDS = 0.005
"""Seconds between two checks whether a killed process has ended."""


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies. Linux only; elsewhere a closed pipe must suffice."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before the call
        os._exit(1)


def kill_group(pid: int) -> None:
    """Kill the process and every process of the group that it leads."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def processes_in_group(pid: int) -> list[psutil.Process]:
    """Return the processes of the group that this process leads or has led."""
    found = []
    for one in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getpgid(one) == pid:
                found.append(psutil.Process(one))
    return found


def await_end(processes: Iterable[psutil.Process], seconds: float) -> None:
    """Wait until these processes have ended, but no longer than this.

    The end of its last thread frees the memory and devices of a process, even if its parent never waits for it.
    """
    deadline = time.monotonic() + seconds
    waiting = list(processes)
    while (waiting := [process for process in waiting if not has_ended(process)]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def has_ended(process: psutil.Process) -> bool:
    """Return whether the last thread of the process has ended. Linux calls it a zombie as soon as the first one has."""
    try:
        if not process.is_running():
            return True
        return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD) and process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


def is_stopped(process: psutil.Process) -> bool:
    """Return whether the process is stopped, by SIGSTOP or a debugger, and so does not respond."""
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.NoSuchProcess:
        return False


def lead_group(parent_pid: int, inherited_fd: int) -> None:
    """Make a forked process the leader of a group and let it die with its parent; close the parent's `inherited_fd`."""
    os.setsid()
    die_with_parent(parent_pid)
    os.close(inherited_fd)


@contextlib.contextmanager
def exits_raise() -> Iterator[None]:
    """Within the context, `os._exit` in the main thread of this process raises SystemExit, which has a traceback."""
    here, leave = os.getpid(), os._exit

    def raise_exit(status: int) -> NoReturn:
        if os.getpid() == here and threading.current_thread() is threading.main_thread():
            raise SystemExit(status)
        leave(status)

    os._exit = raise_exit
    try:
        yield
    finally:
        os._exit = leave


def sender(
    connection: Connection, on_closed: Callable[[object], object] = lambda _message: None
) -> Callable[[object], None]:
    """Return a function that sends messages, and ends this process if the user's code closed the connection."""
    opened = os.fstat(connection.fileno())

    def send(message: object) -> None:
        try:
            is_closed = not os.path.samestat(os.fstat(connection.fileno()), opened)
        except OSError:
            is_closed = True
        if is_closed:
            on_closed(message)
            os._exit(CLOSED_ITS_OUTPUT)
        connection.send(message)

    return send


def exit_words(exitcode: int) -> str:
    if exitcode == CLOSED_ITS_OUTPUT:
        return "closed its output: its code closed file descriptors that it had not opened"
    return f"was ended by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"exited with code {exitcode}"


@contextlib.contextmanager
def pinned(cores: tuple[int, ...]) -> Iterator[None]:
    """Pin this thread, and the processes it starts, to these logical cores within the context. Empty: no pinning."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    pin(cores)
    try:
        yield
    finally:
        pin(tuple(before))


def pin(cores: tuple[int, ...]) -> None:
    """Pin this thread, and what it starts afterwards, to these logical cores. Empty: no pinning."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
