"""Turns of the processes that run tests, as xdist's workers: a test runs beside others, or alone."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = Path(tempfile.gettempdir()) / f"lmsweep-{os.getuid()}"


@contextmanager
def turn(*, alone: bool) -> Iterator[None]:
    """A context in which other tests are beside this one, or none if one of them is alone.

    Whoever wants to be alone holds the queue until all others have ended; who comes later waits in it.
    """
    with _opened("queue") as queue, _opened("tests") as tests:
        fcntl.flock(queue, fcntl.LOCK_EX)
        fcntl.flock(tests, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        yield


@contextmanager
def _opened(name: str) -> Iterator[int]:
    """A file to lock, unlocked afterwards also for what was forked meanwhile."""
    number = os.open(f"{_PREFIX}-{name}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        yield number
    finally:
        fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)
