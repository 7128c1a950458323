"""Prints tables: fitted to the terminal and in colour, or in the format that was asked for."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd
from rich.text import Text

from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.render import render
from lmsweep.analysis.tables.terminal_table import terminal_text
from lmsweep.orchestrator.terminal import folded, harmless, on_terminal, say_data, show, terminal_size

if TYPE_CHECKING:
    from lmsweep.orchestrator.cluster.doctor import Finding  # it imports psutil, which reading does not need


def show_table(table: Table | Listing, output_format: str = "text", *, pages: bool = True) -> None:
    """Print the table; a long one through the pager, if `pages`. Raises RequestError for an unknown format."""
    show_parts([table], output_format, pages=pages)


def show_parts(parts: Sequence[str | Table | Listing], output_format: str = "text", *, pages: bool = True) -> None:
    """Print paragraphs and tables, with an empty line between two; what is long through the pager, if `pages`."""
    if output_format != "text" or not on_terminal():
        say_data("\n".join(f"{part}\n" if isinstance(part, str) else render(part, output_format) for part in parts))
        return
    width = terminal_size().columns
    shown = (
        Text(f"{folded(harmless(part), width)}\n")
        if isinstance(part, str)
        else terminal_text(part, width=width, escape=harmless)
        for part in parts
    )
    show(Text("\n").join(shown), pages=pages)


def show_lines(lines: Mapping[str, Sequence[str]], headings: Sequence[str]) -> None:
    """Print names with texts beside them: on a terminal as a table under these headings, elsewhere one line each."""
    rows = [(name, *texts) for name, texts in lines.items()]
    if on_terminal():
        frame = pd.DataFrame(rows, columns=list(headings))
        show_table(Listing(title="", frame=frame, keys=[headings[0]], units={}))
    else:
        width = max(map(len, lines))
        say_data("\n".join("  ".join((f"{name:<{width}}", *texts)) for name, *texts in rows))


def show_findings(findings: "Sequence[Finding]", *, node: str = "") -> None:
    """Print what the doctor found and the number of warnings, for a node of a cluster under its name."""
    frame = pd.DataFrame(
        [[one.check, one.found, one.advice or "ok"] for one in findings], columns=["check", "finding", "advice"]
    )
    count = sum(one.advice is not None for one in findings)
    words = "no warnings" if not count else "1 warning" if count == 1 else f"{count} warnings"
    title = f"node {node}: {words}" if node else words
    show_table(Listing(title=title, frame=frame, keys=["check"], units={}, tones={"ok": "good"}))
