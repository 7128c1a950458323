"""Prints a table: fitted to the terminal and in colour, or in the format that was asked for."""

from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.render import render
from lmsweep.analysis.tables.terminal import terminal_text
from lmsweep.orchestrator.terminal import harmless, on_terminal, say, show, terminal_size


def show_table(table: Table | Listing, output_format: str = "text", *, pages: bool = True) -> None:
    """Print the table; a long one through the pager, if `pages`. Raises RequestError for an unknown format."""
    if output_format == "text" and on_terminal():
        show(terminal_text(table, width=terminal_size().columns, escape=harmless), pages=pages)
    else:
        say(render(table, output_format))
