"""Host memory that a trial may hold, so that the kernel's out-of-memory killer need not pick a process."""

import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil

from lmsweep.trials.machine.cgroups import memory_limits
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import bytes_of, gib

VARIABLE = "LMSWEEP_HOST_MEMORY"
"""Environment variable that limits the host memory for trials, such as 24GB."""
RESERVE = 0.02
"""Share of the memory for trials that must stay free."""

_container_limits = cache(memory_limits)


def memory_asked_for() -> int | None:
    """Return the bytes in the environment variable, None if it is not set. Raises RequestError if it is not a size."""
    if VARIABLE not in os.environ:
        return None
    size = bytes_of(os.environ[VARIABLE])
    if size is None:
        raise RequestError(f"{VARIABLE}={os.environ[VARIABLE]}: give a size, such as 24GB")
    return size


def memory_there_is(host: int) -> int:
    """Return the bytes for trials on a host with `host` bytes, within the container's and the variable's limits."""
    asked_for = memory_asked_for()
    return min([host, *_container_limits(), *([] if asked_for is None else [asked_for])])


def memory_for_a_trial(host: int) -> int:
    """Return the bytes that a trial may hold on a host with `host` bytes."""
    return round((1 - RESERVE) * memory_there_is(host))


def held_by(pid: int) -> int:
    """Return the bytes of host memory that the process and its descendants hold (resident set size)."""
    return sum(map(_resident, _family(pid)))


def why_to_end(pid: int) -> str | None:
    """Return why the process must end if it and its descendants hold too much memory, else None. Takes 0.1 ms."""
    held, memory = held_by(pid), psutil.virtual_memory()
    allowed = memory_for_a_trial(memory.total)
    if held > allowed:
        return f"host memory: it held {gib(held)}, more than the {gib(allowed)} that a trial may hold"
    # A trial that holds less than half of what it may has not filled the host by itself: others may have.
    if memory.available < RESERVE * memory_there_is(memory.total) and held > 0.5 * allowed:
        return f"host memory: it held {gib(held)}, and the host had only {gib(memory.available)} left"
    return None


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended, or this is not Linux
        return
    for child in children:
        yield from _family(int(child))


def _resident(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.NoSuchProcess:
        return 0


MADV_COLLAPSE = 25
"""madvise(2): collapse small pages into huge ones. Python's mmap module does not define it."""
HUGE_PAGE = 2 << 20


def use_huge_pages() -> None:
    """Have the kernel move this process's private memory into huge pages, as far as it can.

    A fork copies one page-table entry per page. With the 60 000 small pages of a process that has imported torch, this
    is half the cost of a short trial.
    """
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for begin, end in _anonymous_memory():
        # One call per page: a call stops at the first page that is unused or has no free huge page.
        for page in range(-(-begin // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE):
            advise(page, HUGE_PAGE, MADV_COLLAPSE)


def _anonymous_memory() -> Iterator[tuple[int, int]]:
    """Begin and end address of each private, writable mapping that is not backed by a file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, inode, *_ = line.split()
        if rights == "rw-p" and inode == "0":
            begin, end = (int(address, 16) for address in addresses.split("-"))
            yield begin, end
