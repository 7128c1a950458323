"""Prints tables: fitted to the terminal and in colour, or in the format that was asked for."""

import sys
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import pandas as pd
from rich.text import Text

from lmsweep.analysis.tables.listing import Listing, Tone
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


def show_groups(groups: Mapping[str, Mapping[str, str]]) -> None:
    """Print names with texts beside them below the headings of their groups; on a terminal, folded."""
    width = terminal_size().columns if on_terminal() else sys.maxsize
    left = max(len(name) for names in groups.values() for name in names) + 4
    lines = []
    for heading, names in groups.items():
        lines += ["", heading]
        for name, text in names.items():
            words = fill(f"  {name:<{left - 4}}  {text}", width, subsequent_indent=" " * left, break_on_hyphens=False)
            lines.append(words)
    show(Text("\n".join([*lines[1:], ""])))


def show_findings(findings: "Sequence[Finding]", *, node: str = "") -> None:
    """Print what the doctor found, the number of warnings, and its advice, for a node of a cluster under its name."""
    states = ["fails" if one.fails else "warning" if one.advice else "ok" for one in findings]
    rows = [[one.check, one.found, state] for one, state in zip(findings, states, strict=True)]
    frame = pd.DataFrame(rows, columns=["check", "finding", "state"])
    advice = [f"{one.check}: {one.advice}" for one in findings if one.advice]
    words = "no warnings" if not advice else "1 warning" if len(advice) == 1 else f"{len(advice)} warnings"
    title = f"node {node}: {words}" if node else words
    tones: dict[str, Tone] = {"ok": "good", "warning": "unclear", "fails": "bad"}
    show_parts([Listing(title=title, frame=frame, keys=["check"], units={}, tones=tones), *advice])
