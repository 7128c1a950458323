"""Huge pages, which make a fork of a large process cheap. Linux only; elsewhere this does nothing."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

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
