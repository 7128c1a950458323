"""Host memory: how much of it a trial may hold, and how much it does. A trial that takes more is ended before the
kernel looks for a process to kill, which may be any.
"""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil

from trials.amounts import bytes_of
from trials.spec import RequestError

VARIABLE = "LMSWEEP_HOST_MEMORY"
"""Environment variable: as much as a trial may hold, where not all of the host's memory is for trials."""
RESERVE = 0.02
"""Share of the host's memory that must stay available."""

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@cache
def host_memory_limit() -> int:
    """Bytes that a trial may hold. Raises RequestError where the environment variable is no amount of memory."""
    whole = psutil.virtual_memory().total
    limits = [whole]
    for path in map(Path, _CGROUP_LIMITS):
        if path.exists() and (text := path.read_text().strip()).isdecimal():
            limits.append(int(text))
    if VARIABLE in os.environ:
        size = bytes_of(os.environ[VARIABLE])
        if size is None:
            raise RequestError(f"{VARIABLE}={os.environ[VARIABLE]}: give a size, as in 24GB")
        limits.append(size)
    return min(limits)


def why_to_end(pid: int) -> str | None:
    """Why the process must not go on, if it holds too much together with its children; takes some 0.1 ms."""
    held, memory = sum(map(_resident, _family(pid))), psutil.virtual_memory()
    allowed = host_memory_limit() - RESERVE * memory.total
    if held > allowed:
        return f"host memory: it held {held / 1e9:.3g} GB, and may hold {allowed / 1e9:.3g} GB"
    if memory.available < RESERVE * memory.total and held > 0.5 * allowed:
        return f"host memory: it held {held / 1e9:.3g} GB, and {memory.available / 1e9:.3g} GB were left of the host's"
    return None


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended, or this is no Linux
        return
    for child in children:
        yield from _family(int(child))


def _resident(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.NoSuchProcess:
        return 0
