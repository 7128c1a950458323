"""Prints to the terminal. Text from a store or a sweep is untrusted, so control characters in it are escaped."""

import io
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

# Control characters other than tab and newline, and those that change the direction of text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    r"""Return the text with control characters escaped: ESC becomes \x1b."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class OutputError(Exception):
    """Standard output cannot be written to. The message says why."""


class Output(io.TextIOWrapper):
    """Standard output that raises OutputError when writing fails: an OSError could also mean that the store is full.

    A reader that has gone still raises BrokenPipeError.
    """

    _reason: str | None = None

    @classmethod
    def replace(cls) -> None:
        """Replace this process's standard output by an Output."""
        old = sys.stdout
        if type(old) is io.TextIOWrapper:  # but not the object by which a test captures output
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
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # so that the flush at exit succeeds
            raise OutputError(self._reason) from error


def say(text: str, *, error: bool = False) -> None:
    """Print a line with control characters escaped; an error goes to standard error."""
    typer.echo(harmless(text), err=error)


def say_warnings() -> None:
    """Show Python warnings as plain lines on standard error, without their place in the source."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(f"lmsweep: {message}", error=True)

    warnings.showwarning = show


def format_seconds(seconds: float) -> str:
    """Return `1 h 05 min`, `2 min 10 s`, `12.3 s`, `4.56 ms` or `7.8 µs`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
