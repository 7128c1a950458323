"""Processes: how they end with their parent and all of a group at once, and stay on their cores."""

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Has the kernel kill this process when its parent dies. Linux only; elsewhere a closed pipe has to do."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before we asked
        os._exit(1)


def die_when_free(lock: Path) -> None:
    """Has a thread, which sleeps until then, end this process when nobody holds the lock of this file: then the process
    that did is dead, whether it was the parent or not.
    """

    def watch() -> None:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def kill_group(pid: int) -> None:
    """Kills the process and every process of the group that it leads."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def lead_own_group(parent_pid: int, inherited_fd: int) -> None:
    """Makes a fork the head of its own group, that dies with its parent and holds nothing of its parent's."""
    os.setsid()
    die_with_parent(parent_pid)
    os.close(inherited_fd)


@contextlib.contextmanager
def pinned(cores: tuple[int, ...]) -> Iterator[None]:
    """Inside, what this thread starts is kept on these logical cores; on none in particular if there are none."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    pin(cores)
    try:
        yield
    finally:
        pin(tuple(before))


def pin(cores: tuple[int, ...]) -> None:
    """Keeps this process, and what it will start, on these logical cores; on none in particular if there are none."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
