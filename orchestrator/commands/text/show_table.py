"""Prints tables: fitted to the terminal and in colour, or in the format that was asked for."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd
from rich.text import Text
from tabulate import tabulate

from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.render import render
from lmsweep.analysis.tables.terminal_table import terminal_text
from lmsweep.orchestrator.terminal import folded, harmless, on_terminal, say, say_data, show, terminal_size

if TYPE_CHECKING:
    from lmsweep.orchestrator.cluster.doctor import Finding  # it imports psutil, which reading does not need


def show_table(table: Table | Listing, output_format: str = "text", *, pages: bool = True) -> None:
    """Print the table; a long one through the pager, if `pages`. Raises RequestError for an unknown format."""
    if output_format == "text" and on_terminal():
        show(terminal_text(table, width=terminal_size().columns, escape=harmless), pages=pages)
    else:
        say_data(render(table, output_format))


def show_tables(tables: Sequence[Table | Listing], output_format: str) -> None:
    """Print tables, with an empty line between two. Raises RequestError for an unknown format."""
    if output_format == "text" and on_terminal():
        width = terminal_size().columns
        show(Text("\n").join(terminal_text(one, width=width, escape=harmless) for one in tables))
    else:
        say_data("\n".join(render(one, output_format) for one in tables))


def show_lines(lines: Mapping[str, Sequence[str]], headings: Sequence[str]) -> None:
    """Print names with texts beside them: on a terminal as a table under these headings, elsewhere one line each."""
    rows = [(name, *texts) for name, texts in lines.items()]
    if on_terminal():
        frame = pd.DataFrame(rows, columns=list(headings))
        show_table(Listing(title="", frame=frame, keys=[headings[0]], units={}))
    else:
        width = max(map(len, lines))
        say_data("\n".join("  ".join((f"{name:<{width}}", *texts)) for name, *texts in rows))


def show_parts(parts: Sequence[str | Listing], *, pages: bool = True) -> None:
    """Print paragraphs and tables, with an empty line between two; what is long through the pager, if `pages`."""
    if not on_terminal():
        texts = (part if isinstance(part, str) else render(part, "text").rstrip() for part in parts)
        say_data("\n\n".join(texts))
        return
    width = terminal_size().columns
    shown = (
        Text(f"{folded(harmless(part), width)}\n")
        if isinstance(part, str)
        else terminal_text(part, width=width, escape=harmless)
        for part in parts
    )
    show(Text("\n").join(shown), pages=pages)


def show_findings(findings: "Sequence[Finding]", *, node: str = "") -> None:
    """Print what the doctor found and the number of warnings, for a node of a cluster under its name."""
    columns = ["check", "finding", "advice"]
    rows = [[one.check, one.found, one.advice or "ok"] for one in findings]
    count = sum(one.advice is not None for one in findings)
    words = "no warnings" if not count else "1 warning" if count == 1 else f"{count} warnings"
    name = f"node {node}" if node else ""
    if on_terminal():
        frame = pd.DataFrame(rows, columns=columns)
        title = ": ".join(filter(None, [name, words]))
        show_table(Listing(title=title, frame=frame, keys=["check"], units={}, tones={"ok": "good"}))
    else:
        table = tabulate(rows, headers=columns, disable_numparse=True)
        say("\n\n".join(filter(None, [name, table, words])))
