"""Waiting for what other processes do."""

import time
from collections.abc import Callable, Iterable

import psutil


def wait_until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Until the call returns something true. That it never does is a failure."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.01)


def assert_nothing_left(processes: Iterable[psutil.Process], seconds: float = 10) -> None:
    """That these processes end in this time."""
    alive = psutil.wait_procs(processes, timeout=seconds)[1]
    assert not alive, [(one, " ".join(one.cmdline())[:80]) for one in alive]
