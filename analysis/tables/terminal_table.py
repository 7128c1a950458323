"""A table for a terminal of a given width: no line is cut off or wrapped by the terminal.

What all cells share moves into the title. A table that is still too wide gets headers of several lines, then is
transposed, then its texts are wrapped, then it is split into sections by its first keys and into groups of columns.
"""

import re
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import groupby
from textwrap import fill, wrap
from typing import Any, NamedTuple

import pandas as pd
from rich.box import Box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Drawing
from rich.text import Text

from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.text_table import MORE_ON_FLAGS, Markup, axis_names, header_of_keys, sheet_of

GAP = "  "

LEAST_TEXT_WIDTH = 24
"""Minimum width of a column of wrapped text, in columns of the terminal."""

MOST_KEY_WIDTH = 0.6
"""Share of the width that row keys may take. If they take more, the first keys become headings of sections."""

MOST_TRANSPOSED = 12
"""Maximum number of rows of a table that is transposed."""

STYLES: dict[Tone, str] = {"good": "green", "bad": "red", "unclear": "yellow", "neutral": "dim"}

RULE = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
"""A line below the header alone."""


class _Column(NamedTuple):
    header: list[str]  # of several levels
    texts: list[str]
    holds_words: bool


def terminal_text(table: Table | Listing, *, width: int, escape: Callable[[str], str] = str) -> Text:
    """Return the table as styled text whose lines are at most `width` columns wide.

    escape: applied to every text of the table, which may contain control characters. A single column that is wider than
    the terminal stays so.
    """
    sheet = sheet_of(table, Markup(escape=escape))
    words, tones = sheet.words, table.tones if isinstance(table, Listing) else {}
    cells, shared = _without_constant_keys(sheet.cells)
    text = Text()
    conditions = ", ".join(filter(None, [sheet.conditions, *shared]))
    for said, style in ((sheet.caption, "bold"), (conditions, "dim")):
        for line in filter(None, said.split("\n")):
            text.append(_filled(line, width), style)
    for part, own in _parts(cells, words, width):
        text.append("\n" if text else "")
        text.append(_filled(", ".join(own), width) if own else "", "bold")
        text.append_text(_drawn(part, words, tones, width))
    text.append("\n" if sheet.notes else "")
    for note in [*sheet.notes, *[MORE_ON_FLAGS] * sheet.has_flags]:
        text.append(_filled(note, width))
    return text


def _filled(text: str, width: int) -> str:
    """Return the text in lines of at most `width` columns. A command at its end stays whole, on a line of its own."""
    words, colon, command = text.rpartition(": lmsweep ")
    if len(text) > width and colon:
        return f"{_filled(f'{words}:', width)}  lmsweep {command}\n"
    indent = " " * (text.index(") ") + 2) if re.match(r"\(\w+\) ", text) else ""
    return fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) + "\n"


def _without_constant_keys(cells: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Drop keys that are the same in all rows, or in all columns, and return them. One key stays on each side."""
    found: list[str] = []
    for axis in (0, 1) if len(cells) > 1 else ():
        for level in reversed(range(cells.axes[axis].nlevels)):  # from the last, so that the numbers of others stay
            names, values = axis_names(cells.axes[axis]), cells.axes[axis].get_level_values(level).unique()
            if len(values) == 1 and len(names) > 1:
                cells = cells.droplevel(level, axis=axis)
                found.insert(0, values[0] if names[level] == "value" else f"{names[level]} {values[0]}")
    return cells, found


def _parts(cells: pd.DataFrame, words: tuple[str, ...], width: int) -> Iterator[tuple[pd.DataFrame, list[str]]]:
    """Yield the table or its transposed, if one fits; else sections by the first row keys, and groups of columns. Each
    part comes with the texts of the keys that all of its cells share."""
    cells, shared = _without_constant_keys(cells)
    if _least_width(cells, words) <= width:
        yield cells, shared
        return
    if len(cells) <= MOST_TRANSPOSED and _least_width(cells.T, words, breaks=False) <= width:
        yield cells.T, shared
        return
    if _least_width(cells, words, wraps=True) <= width:
        yield cells, shared
        return
    first, keys_alone = cells.index.get_level_values(0), cells.iloc[:, :0]
    if cells.index.nlevels > 1 and _least_width(keys_alone, words, wraps=True) > MOST_KEY_WIDTH * width:
        for value in first.unique():
            for part, own in _parts(cells[first == value].droplevel(0), words, width):
                yield part, [*shared, f"{cells.index.names[0]} {value}", *own]
        return
    labels = _labels(cells.columns)
    groups = [list(each) for _, each in groupby(range(len(labels)), key=lambda place: labels[place][0])]
    if any(_least_width(cells.iloc[:, group], words, wraps=True) > width for group in groups):
        groups = [[place] for place in range(len(labels))]
    while groups:
        taken = groups.pop(0)
        while groups and _least_width(cells.iloc[:, [*taken, *groups[0]]], words, wraps=True) <= width:
            taken += groups.pop(0)
        part, own = _without_constant_keys(cells.iloc[:, taken])
        yield part, [*shared, *own]


def _least_width(cells: pd.DataFrame, words: tuple[str, ...], *, wraps: bool = False, breaks: bool = True) -> int:
    """Return the table's smallest width. wraps: keys and words are wrapped. breaks: headers have several lines."""
    width = -len(GAP)  # there is none after the last column
    for header, texts, holds_words in _columns(cells, words):
        pieces = [piece.strip() for level in header for piece in re.split(r"(?<=[_ ])" if breaks else "$", level)]
        most = max(map(cell_len, texts), default=0)
        if wraps and holds_words:
            most = min(most, max([LEAST_TEXT_WIDTH, *(cell_len(word) for text in texts for word in text.split())]))
        width += max(most, *map(cell_len, pieces)) + len(GAP)
    return width


def _columns(cells: pd.DataFrame, words: tuple[str, ...]) -> list[_Column]:
    """Return the columns, row keys first."""
    corner = header_of_keys(axis_names(cells.index), axis_names(cells.columns))
    of_keys = zip(corner, zip(*_labels(cells.index), strict=True), strict=True)
    found = [_Column(header, [*texts], holds_words=True) for header, texts in of_keys]
    below = [""] * (len(corner[0]) - cells.columns.nlevels)  # beside the names of row keys
    for place, label in enumerate(_labels(cells.columns)):
        found.append(_Column([*label, *below], cells.iloc[:, place].to_list(), holds_words=label[0] in words))
    return found


def _drawn(cells: pd.DataFrame, words: tuple[str, ...], tones: dict[str, Tone], width: int) -> Text:
    columns = _columns(cells, words)
    wraps = _least_width(cells, words) > width
    is_plain = _least_width(cells, words, breaks=False) <= width
    seen = [(*one.texts, *(one.header if is_plain else ())) for one in columns]
    widths = [max(map(cell_len, texts), default=0) for texts in seen]
    drawing = Drawing(box=RULE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="", style="dim")
    for column, lines in zip(columns, _headers([one.header for one in columns], widths), strict=True):
        drawing.add_column(
            Text("\n".join(lines)),
            justify="left" if column.holds_words else "right",
            no_wrap=not (wraps and column.holds_words),
            overflow="fold",
        )
    for row in zip(*(one.texts for one in columns), strict=True):
        drawing.add_row(*(Text(text, STYLES[tone] if (tone := tones.get(text.split(" (")[0])) else "") for text in row))
    console = Console(width=width, file=StringIO(), legacy_windows=False)
    return Text.assemble(*((one.text, one.style or "") for one in console.render(drawing)))


def _headers(headers: list[list[str]], widths: list[int]) -> Iterator[list[str]]:
    """Yield the lines of each header. A level is as high in all columns, and its words stand in its last lines."""
    broken = [[_broken(level, width) for level in header] for header, width in zip(headers, widths, strict=True)]
    heights = [max(map(len, level)) for level in zip(*broken, strict=True)]
    for header in broken:
        levels = zip(header, heights, strict=True)
        yield [line for level, height in levels for line in [*([""] * (height - len(level))), *level]]


def _broken(text: str, width: int) -> list[str]:
    lines = wrap(text.replace("_", "_ "), max(width, 1), break_long_words=False, break_on_hyphens=False)
    return [line.replace("_ ", "_") for line in lines] or [""]


def _labels(axis: pd.Index) -> list[tuple[Any, ...]]:
    return [key if isinstance(key, tuple) else (key,) for key in axis]
