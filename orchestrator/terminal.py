"""What the command prints. Words of a store or a sweep may be anyone's, so none of them may steer the terminal."""

import io
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

# Control characters other than tab and new line, and those that reverse the direction of text.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    r"""The text with what would steer a terminal written out: an escape is \x1b."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class OutputError(Exception):
    """Standard output takes no more. The message says why."""


class Output(io.TextIOWrapper):
    """Standard output that raises OutputError where it takes no more: as an OSError it could be the store that is full.
    A reader that has gone is BrokenPipeError as ever.
    """

    _reason: str | None = None

    @classmethod
    def replace(cls) -> None:
        """Has this process print to such a one."""
        old = sys.stdout
        if type(old) is io.TextIOWrapper:  # not what a test reads
            settings: dict[str, Any] = {"encoding": old.encoding, "errors": old.errors}
            settings |= {"line_buffering": old.line_buffering, "write_through": old.write_through}
            sys.stdout = cls(old.detach(), **settings)

    def write(self, text: str) -> int:
        with self._told():
            written = super().write(text)
        if self._reason and text:
            raise OutputError(self._reason)
        return written

    def flush(self) -> None:
        with self._told():
            super().flush()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            self._reason = error.strerror
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # for the flush at the interpreter's end
            raise OutputError(self._reason) from error


def say(text: str, *, error: bool = False) -> None:
    """Prints the text, made harmless, and a new line; an error on standard error."""
    typer.echo(harmless(text), err=error)


def say_warnings() -> None:
    """From now on a warning is a line on standard error like any other, without its place in the source."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(f"lmsweep: {message}", error=True)

    warnings.showwarning = show


def format_seconds(seconds: float) -> str:
    """1 h 05 min, 2 min 10 s, 12.3 s, 4.56 ms, ..."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
