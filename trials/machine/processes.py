"""Processes: they die with their parent, are killed as a group, and stay on their cores."""

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that this process gets when its parent dies."""

POLL_SECONDS = 0.005
"""Seconds between two checks whether a killed process has ended."""


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies. Linux only; elsewhere a closed pipe must suffice."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before the call
        os._exit(1)


def die_when_free(lock: Path) -> None:
    """End this process, from a sleeping thread, as soon as the lock on this file is free.

    The holder of the lock need not be the parent. The kernel frees the lock when the holder dies.
    """

    def watch() -> None:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def kill_group(pid: int) -> None:
    """Kill the process and every process of the group that it leads."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def members_of_group(pid: int) -> list[psutil.Process]:
    """Return the processes of the group that this process leads or has led."""
    found = []
    for one in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getpgid(one) == pid:
                found.append(psutil.Process(one))
    return found


def await_end(processes: Iterable[psutil.Process], seconds: float) -> None:
    """Wait until these processes have ended, but no longer than this.

    A process has ended once its last thread has, which frees its memory and its devices, even if its parent has not
    waited for it yet: the first process of a container may do so for orphans once a second only, or never.
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
    """Return whether the process has been stopped, by SIGSTOP or a debugger, and so answers nobody."""
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.NoSuchProcess:
        return False


def lead_own_group(parent_pid: int, inherited_fd: int) -> None:
    """Make a forked process the leader of its own group and let it die with its parent.

    `inherited_fd` is a file descriptor of the parent that the fork closes.
    """
    os.setsid()
    die_with_parent(parent_pid)
    os.close(inherited_fd)


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
    """Pin this thread, and what it starts from now on, to these logical cores. Empty: no pinning."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
