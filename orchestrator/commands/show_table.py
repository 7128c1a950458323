"""Prints tables: fitted to the terminal and in colour, or in the format that was asked for."""

from collections.abc import Sequence

from rich.text import Text

from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.render import render
from lmsweep.analysis.tables.terminal_table import terminal_text
from lmsweep.orchestrator.terminal import folded, harmless, on_terminal, say_data, show, terminal_size


def show_parts(parts: Sequence[str | Table | Listing], output_format: str = "text", *, pages: bool = True) -> None:
    """Print paragraphs and tables, with an empty line between two. pages: whether the pager may show a long text."""
    if output_format == "text" and on_terminal():
        show(_fitted(parts), pages=pages)
    else:
        say_data(_as_it_is(parts, output_format))


SCREEN = 40
"""Lines that count as one screen, whatever the height of the terminal."""


def fits_screen(parts: Sequence[str | Table | Listing]) -> bool:
    """Whether these paragraphs and tables take at most SCREEN lines."""
    if sum(map(len, (part for part in parts if not isinstance(part, str)))) > SCREEN:
        return False  # a row takes at least a line
    text = _fitted(parts).plain if on_terminal() else _as_it_is(parts, "text")
    width = terminal_size().columns
    # Only a command, which follows two spaces, may be wider than the terminal, which wraps it.
    return sum(-(-len(line) // width) if "  lmsweep" in line else 1 for line in text.split("\n")) <= SCREEN


def _as_it_is(parts: Sequence[str | Table | Listing], output_format: str) -> str:
    return "\n".join(f"{part}\n" if isinstance(part, str) else render(part, output_format) for part in parts)


def _fitted(parts: Sequence[str | Table | Listing]) -> Text:
    width = terminal_size().columns
    shown = (
        Text(f"{folded(harmless(part), width)}\n")
        if isinstance(part, str)
        else terminal_text(part, width=width, escape=harmless)
        for part in parts
    )
    return Text("\n").join(shown)
