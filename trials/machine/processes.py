"""Processes: they die with their parent, are killed as a group, and stay on their cores."""

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
"""prctl(2): the signal that this process gets when its parent dies."""


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
