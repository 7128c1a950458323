"""Records commands in a terminal as animated SVGs: docs/terminal.svg and others.

``python -m tools.record_terminal`` runs the commands below in a pseudo-terminal, in a copy of examples/student, looks
at its screen some times a second, and writes one picture that shows the screens in turn. ``python -m
tools.record_terminal fits`` records one. The picture is plain SVG and CSS, which code hosts show in a README. Readers
who ask for reduced motion see the last screen.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from html import escape, unescape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyte

ROOT = Path(__file__).parents[1]
RECORDINGS = {
    "terminal": ("lmsweep init", "lmsweep check lmsweep.yaml"),
    "fits": ("lmsweep fits qwen3-8b --for H100,H200,4090 --method full --tokens 1B --price H100=2.5 --price H200=3.5",),
}
"""Name of the picture in docs/ -> the commands, one after the other."""
COLUMNS, ROWS = 100, 38
CHARACTER_WIDTH, LINE_HEIGHT, FONT_SIZE, MARGIN = 8.4, 18, 14, 14
"""CSS pixels."""
LONGEST_PAUSE = 1.5
"""Seconds that a screen which does not change is shown; more is left out of the recording."""
READING_PAUSE = 5.0
"""Seconds that the last screen of a command is shown."""
HOME = "/home/me"
"""Shown in place of the temporary folder that the commands run in."""
INTERVAL = 0.2
"""Seconds between two looks at the screen."""
BOLD = ' class="b"'
COLOURS = {
    "default": "#d4d4d4", "red": "#f48771", "green": "#89d185", "yellow": "#e2c08d", "brown": "#e2c08d",
    "blue": "#75beff", "magenta": "#d7a6ff", "cyan": "#6fd3d3", "black": "#808080", "white": "#ffffff",
}  # fmt: skip

Line = tuple[tuple[str, str, bool], ...]
"""Pieces of a line: the text, its colour, and whether it is bold."""


class Screen(NamedTuple):
    """What the terminal showed, and for how many seconds."""

    lines: tuple[Line, ...]
    seconds: float


def record(commands: tuple[str, ...], folder: Path) -> Iterator[Screen]:
    """Run the commands one after the other in the folder, and yield the different screens."""
    import pyte

    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    for command in commands:
        stream.feed(f"\x1b[0;1;32m$\x1b[0m {command}\r\n".encode())
        yield Screen(_lines(screen), 1.0)
        last, since = _lines(screen), time.monotonic()
        for piece in _output(command, folder):
            stream.feed(piece.replace(str(folder.parent).encode(), HOME.encode()))
            if (lines := _lines(screen)) != last:
                now = time.monotonic()
                yield Screen(last, min(now - since, LONGEST_PAUSE))
                last, since = lines, now
        yield Screen(last, READING_PAUSE)


def _output(command: str, folder: Path) -> Iterator[bytes]:
    """Yield what the command writes to its terminal, at most every INTERVAL seconds. Raises CalledProcessError."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {**os.environ, "PATH": path, "TERM": "xterm-256color", "PAGER": "", "HOME": str(folder)}
    process = subprocess.Popen(
        command, shell=True, cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    written = b""
    due = time.monotonic() + INTERVAL
    while True:
        if select.select([ours], [], [], max(0.0, due - time.monotonic()))[0]:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # how Linux reports that the other end is closed
                piece = b""
            if not piece:
                break
            written += piece
        else:
            yield written
            written, due = b"", time.monotonic() + INTERVAL
    yield written
    os.close(ours)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)


def _lines(screen: pyte.Screen) -> tuple[Line, ...]:
    return tuple(_line([screen.buffer[row][column] for column in range(COLUMNS)]) for row in range(ROWS))


def _line(cells: list[pyte.screens.Char]) -> Line:
    pieces = [
        ("".join(cell.data for cell in group), *look)
        for look, group in groupby(cells, lambda cell: (cell.fg, cell.bold))
    ]
    if pieces and not pieces[-1][0].strip():
        pieces.pop()
    return tuple(pieces)


def svg(screens: list[Screen], title: str) -> str:
    """Return the animated picture. Every line is written once, however many screens show it."""
    rows = max(row + 1 for screen in screens for row, line in enumerate(screen.lines) if line)
    width, height = MARGIN * 2 + COLUMNS * CHARACTER_WIDTH, MARGIN * 2 + rows * LINE_HEIGHT
    names: dict[Line, str] = {}
    frames = []
    for number, screen in enumerate(screens):
        uses = [
            f'<use href="#{names.setdefault(line, f"l{len(names)}")}" y="{row * LINE_HEIGHT}"/>'
            for row, line in enumerate(screen.lines)
            if line
        ]
        frames.append(f'<g transform="translate(0 {number * height:g})">{"".join(uses)}</g>')
    total = sum(screen.seconds for screen in screens)
    steps, elapsed = [], 0.0
    for number, screen in enumerate(screens):
        steps.append(f"{100 * elapsed / total:.3f}%{{transform:translateY({-number * height:g}px)}}")
        elapsed += screen.seconds
    last = f"translateY({-(len(screens) - 1) * height:g}px)"
    style = (
        f"text{{font:{FONT_SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        "white-space:pre}.b{font-weight:bold}"
        f"@keyframes play{{{''.join(steps)}}}"
        f"#film{{animation:play {total:.1f}s step-end infinite}}"
        f"@media (prefers-reduced-motion:reduce){{#film{{animation:none;transform:{last}}}}}"
    )
    lines = "".join(f'<g id="{name}">{_text(line)}</g>' for line, name in names.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">'
        f"<title>{escape(title)}</title><style>{style}</style><defs>{lines}</defs>"
        f'<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>'
        f'<svg x="{MARGIN}" y="{MARGIN}" width="{width - MARGIN:g}" height="{height - MARGIN:g}">'
        f'<g id="film">{"".join(frames)}</g></svg></svg>\n'
    )


def _text(line: Line) -> str:
    """Return the pieces, each at its column: a font of another width then shifts no column."""
    found, column = [], 0
    for text, colour, bold in line:
        if text.strip():
            lead = len(text) - len(text.lstrip())
            shown = text.strip()
            fill = COLOURS.get(colour, f"#{colour}")
            found.append(
                f'<text x="{(column + lead) * CHARACTER_WIDTH:g}" y="{FONT_SIZE}" fill="{fill}"'
                f' textLength="{len(shown) * CHARACTER_WIDTH:g}"{BOLD if bold else ""}>{escape(shown)}</text>'
            )
        column += len(text)
    return "".join(found)


def last_lines(picture: str) -> list[str]:
    """Return the text of the lines of the last screen that a picture shows."""
    of_line = {
        name: "".join(re.findall(r">([^<]+)<", line)) for name, line in re.findall(r'<g id="(l\d+)">(.*?)</g>', picture)
    }
    last = picture.rpartition('<g transform="')[2]
    return [unescape(of_line[name]) for name in re.findall(r'<use href="#(l\d+)"', last)]


def main(names: list[str]) -> None:
    for name in names or RECORDINGS:
        path = ROOT / "docs" / f"{name}.svg"
        path.write_text(drawn(RECORDINGS[name]), "utf-8")
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")


def drawn(commands: tuple[str, ...]) -> str:
    """Run the commands in a copy of examples/student, and return their picture."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        student = Path(folder, "student")
        shutil.copytree(ROOT / "examples" / "student", student, ignore=shutil.ignore_patterns("lmsweep.yaml"))
        return svg(list(record(commands, student)), " and ".join(commands))


if __name__ == "__main__":
    main(sys.argv[1:])
