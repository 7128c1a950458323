"""Huge pages: what makes a fork of a large process cheap. Linux only; elsewhere nothing is done."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

MADV_COLLAPSE = 25
HUGE_PAGE = 2 << 20
"""Bytes."""


def use_huge_pages() -> None:
    """Has the kernel put this process's own memory into huge pages, as far as it can.

    A fork copies the entry of every page, and its end takes each of them back: with the 60 000 small pages of a process
    that has imported torch, that is half of what a short trial costs.
    """
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for begin, end in _own_memory():
        # One by one, as the first that is not in use, or for which no huge page is free, would end it.
        for page in range(-(-begin // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE):
            advise(page, HUGE_PAGE, MADV_COLLAPSE)


def _own_memory() -> Iterator[tuple[int, int]]:
    """Begin and end of each stretch of memory that this process alone writes and that belongs to no file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, inode, *_ = line.split()
        if rights == "rw-p" and inode == "0":
            begin, end = (int(address, 16) for address in addresses.split("-"))
            yield begin, end
