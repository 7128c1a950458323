"""Prints to the terminal. Text from a store or a sweep is untrusted, so control characters in it are escaped."""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from textwrap import fill, wrap
from typing import TYPE_CHECKING, TextIO, TypeVar

import typer

from lmsweep.trials.spec.errors import RequestError

if TYPE_CHECKING:
    from rich.text import Text

# Control characters other than tab and newline, and those that change the direction of text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    r"""Return the text with control characters escaped: ESC becomes \x1b."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class OutputError(Exception):
    """Standard output cannot be written to; the message says why."""


class Output(io.TextIOWrapper):
    """Standard output that raises OutputError when writing fails; if its reader has gone, BrokenPipeError."""

    _reason: str | None = None

    @classmethod
    def replace(cls) -> None:
        old = sys.stdout
        if type(old) is io.TextIOWrapper:  # but not the object by which a test captures output
            names = ("encoding", "errors", "line_buffering", "write_through")
            settings = {name: getattr(old, name) for name in names}
            sys.stdout = cls(old.detach(), **settings)

    def write(self, text: str) -> int:
        with self._reported():
            written = super().write(text)
        if self._reason and text:  # an earlier write has failed; what follows goes to /dev/null
            raise OutputError(self._reason)
        return written

    def flush(self) -> None:
        with self._reported():
            super().flush()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            self._reason = error.strerror
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # so that the flush at exit succeeds
            raise OutputError(self._reason) from error


_COMMAND = re.compile(r"(?<=: )(?:lmsweep|pip|sudo|\S*python\S*) .*$")
"""A command at the end of a sentence."""


def folded(text: str, width: int) -> str:
    """Return the text with lines of at most `width` columns.

    A command at the end of a sentence stays whole, on a line of its own. Lines that begin with a space stay.
    """
    lines = []
    for line in text.split("\n"):
        if len(line) <= width or line.startswith(" "):
            lines.append(line)
        else:
            command = _COMMAND.search(line)
            words = line[: command.start()] if command else line
            words = re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", words)  # `5 %` stays together
            wrapped = wrap(words, width, break_long_words=False, break_on_hyphens=False)
            lines += [one.replace("\N{NO-BREAK SPACE}", " ") for one in wrapped]
            lines += [f"  {command[0]}"] if command else []
    return "\n".join(lines)


SAY_AFTER = 10.0
"""Seconds after which a command says what it waits for."""

Item = TypeVar("Item")


class ProgressLine:
    """A line on standard error about a wait: on a terminal kept up to date, else printed once, after SAY_AFTER s."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()
        self.every = 1.0 if self._is_live else SAY_AFTER
        """Seconds between two calls of `show` that may show something new."""
        self._until = time.monotonic() + self.every
        self._is_shown = False

    def show(self, words: Callable[[], str]) -> None:
        if time.monotonic() < self._until or (self._is_shown and not self._is_live):
            return
        self._until = time.monotonic() + self.every
        self._is_shown = True
        if self._is_live:
            width = terminal_size(sys.stderr).columns - 1  # a full line would continue on the next one
            typer.echo(f"\r\x1b[K{harmless(words())[:width]}", nl=False, err=True)
        else:
            say(words(), error=True)

    def end(self) -> None:
        """Make room for other lines."""
        if self._is_live and self._is_shown:
            typer.echo("\r\x1b[K", nl=False, err=True)


def counting(items: Iterable[Item], words: str) -> Iterator[Item]:
    """Yield the items; a ProgressLine has `words` with their number so far."""
    line = ProgressLine()
    try:
        for count, item in enumerate(items):
            line.show(lambda: words.format(count))  # noqa: B023 - called at once
            yield item
    finally:
        line.end()


def say(text: str, *, error: bool = False) -> None:
    """Print words, on a terminal folded to its width; an error to standard error."""
    stream = sys.stderr if error else sys.stdout
    typer.echo(folded(harmless(text), terminal_size(stream).columns) if stream.isatty() else harmless(text), err=error)


def say_data(text: str) -> None:
    """Print a text such as JSON, CSV or a sweep file as it is."""
    typer.echo(harmless(text))


def on_terminal() -> bool:
    """Whether a person reads standard output as it appears."""
    return sys.stdout.isatty()


ANSWER_SECONDS = 0.5
"""How long a terminal may take to report its cursor, over a slow connection too."""


def somebody_is_there() -> bool:
    """Whether a person can answer a pager. A terminal that a person sees reports its cursor when a program asks.

    The terminals that `ray exec`, `ssh -tt`, `script` and CI give a command report nothing, and a pager would wait
    there for ever.
    """
    if not (sys.stdin.isatty() and on_terminal()) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    if sys.platform == "win32":
        return True
    import select
    import termios
    import tty

    terminal = sys.stdin.fileno()
    if os.tcgetpgrp(terminal) != os.getpgrp() or select.select([terminal], [], [], 0)[0]:
        return False  # in the background, or keys wait there that the question would swallow
    before = termios.tcgetattr(terminal)
    answer, until = b"", time.monotonic() + ANSWER_SECONDS
    try:
        tty.setcbreak(terminal)
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), b"\x1b[6n")  # where is the cursor? ESC [ 12 ; 1 R
        while not answer.endswith(b"R") and select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0]:
            answer += os.read(terminal, 1)
    except OSError:  # the terminal has gone
        return False
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    return answer.endswith(b"R")


def terminal_size(stream: TextIO | None = None) -> os.terminal_size:
    """Return COLUMNS and LINES, or the size of the terminal behind a stream, by default standard output."""
    try:  # shutil.get_terminal_size asks sys.__stdout__, which Output has replaced
        asked = os.get_terminal_size((stream or sys.stdout).fileno())
    except OSError:  # not a terminal
        asked = os.terminal_size((80, 24))
    given = [os.environ.get(name, "") for name in ("COLUMNS", "LINES")]
    columns, lines = (
        int(text) if text.isdigit() and int(text) else size for text, size in zip(given, asked, strict=True)
    )
    return os.terminal_size((columns or 80, lines or 24))  # some terminals report 0


def show(text: "Text", *, pages: bool = True) -> None:
    """Print a styled text that is harmless already. With `pages`, a long one goes through the pager."""
    from rich.console import Console

    size = terminal_size()
    console = Console(width=size.columns, highlight=False)
    program = shlex.split(os.environ.get("PAGER", "less"))
    is_long = text.plain.count("\n") >= size.lines
    if not (is_long and pages and Wanted.pager and program and shutil.which(program[0]) and somebody_is_there()):
        console.print(text, end="", soft_wrap=True)
        return
    with console.capture() as captured:
        console.print(text, end="", soft_wrap=True)
    settings = {"LESS": "FRX", "LV": "-c"} | os.environ  # as git's: with colours, and not cleared at the end
    subprocess.run(program, input=captured.get(), text=True, encoding="utf-8", env=settings, check=False)


def show_groups(groups: Mapping[str, Mapping[str, str]]) -> None:
    """Print names with texts beside them below the headings of their groups; on a terminal, folded."""
    from rich.text import Text

    width = terminal_size().columns if on_terminal() else sys.maxsize
    left = max(len(name) for names in groups.values() for name in names) + 4  # two spaces before a name, two after
    lines = []
    for heading, names in groups.items():
        lines += ["", heading]
        for name, text in names.items():
            words = fill(f"  {name:<{left - 4}}  {text}", width, subsequent_indent=" " * left, break_on_hyphens=False)
            lines.append(words)
    show(Text("\n".join([*lines[1:], ""])))


class Wanted:
    """Whether long output goes through a pager, and an error is printed with its traceback."""

    pager: bool = True
    traceback: bool = False


def say_warnings() -> None:
    """Show each Python warning once, as a plain line on standard error, without its place in the source."""
    said = set[str]()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in said:
            said.add(str(message))
            say(f"lmsweep: {message}", error=True)

    warnings.showwarning = show


class NotShownWarning(UserWarning):
    """A line or a table could not be made. Tests treat it as an error."""


@contextmanager
def continuing(what: str) -> Iterator[None]:
    """Continue if `what` cannot be shown, and say so: what fails to be printed must not end what is measured."""
    try:
        yield
    except (OutputError, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever is in a row
        words = " ".join(str(error).split())[:200]  # two lines or so
        if not isinstance(error, RequestError):
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
            words = f"{type(error).__name__} at {place}{f': {words}' if words else ''}; this is an error in lmsweep"
        warnings.warn(f"{what} could not be shown: {words}", NotShownWarning, stacklevel=3)


def time_left(seconds: float) -> str:
    """Return `about 2 min 10 s left`."""
    return "less than a second left" if seconds < 1 else f"about {format_seconds(seconds)} left"


MOST_HOURS = 100_000
"""From so many hours on, a number of seconds is no time that anything took, and is printed as seconds."""


def format_seconds(seconds: float) -> str:
    """Return `1 h 05 min`, `2 min 10 s`, `12.3 s`, `4.56 ms` or `7.8 µs`, of any number."""
    if not 0 <= seconds < 3600 * MOST_HOURS:
        return f"-{format_seconds(-seconds)}" if -3600 * MOST_HOURS < seconds < 0 else f"{seconds:.3g} s"
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02} s"
    shown = float(f"{seconds:.3g}")
    if shown >= 1:
        return f"{seconds:.1f} s"
    return f"{shown * 1e3:.3g} ms" if shown >= 1e-3 else f"{shown * 1e6:.3g} µs"
