"""Ctrl-C while something is at work that cannot be left halfway."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from orchestrator.terminal import say


@contextmanager
def ctrl_c_waits(what: str) -> Iterator[None]:
    """Inside, Ctrl-C is KeyboardInterrupt only at the end; pressed again, it is at once. For the main thread."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        say(f"Ctrl-C: {what} is finished first; press it again to end at once", error=True)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
