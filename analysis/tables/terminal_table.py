"""A table for a terminal of a given width: no line is cut off or wrapped by the terminal.

What all cells share moves into the title. A table that is still too wide gets headers of several lines, then is
transposed, then is split into parts: sections by its first row keys, and groups of columns.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from textwrap import fill, wrap

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from lmsweep.analysis.tables.bar_chart import bars
from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.text_table import Markup, Sheet, axis_names, sheet_of

GAP = "  "

LONG_TEXTS = (96, 80, 64, 56, 48, 40, 36, 32, 28, 24)
"""Texts longer than the first of these that makes the table fit are wrapped; in sections, than SHORT."""
SHORT = 32

MOST_KEYS = 0.6
"""Share of the width that row keys may take before the first of them become headings of sections."""

MOST_TRANSPOSED = 12

STYLES: dict[Tone, str] = {"good": "green", "bad": "red", "unclear": "yellow", "neutral": "dim"}


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The keys along one side of a table."""

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    """For each place, one text per name."""

    def only(self, places: Sequence[int]) -> "Axis":
        return replace(self, labels=tuple(self.labels[place] for place in places))

    def without(self, level: int) -> "Axis":
        labels = tuple((*label[:level], *label[level + 1 :]) for label in self.labels)
        return Axis(names=(*self.names[:level], *self.names[level + 1 :]), labels=labels)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A part of a table."""

    rows: Axis
    columns: Axis
    cells: tuple[tuple[str, ...], ...]
    """The texts by column, then row."""
    heading: tuple[str, ...] = ()
    """What all cells of this part share, `name value` each."""
    words: frozenset[str] = frozenset()
    """Names of the columns of a listing that hold words: they are at the left of their column."""
    plain: bool = True
    """Whether each label of a header is on one line."""

    def only_columns(self, places: Sequence[int]) -> "Grid":
        return replace(self, columns=self.columns.only(places), cells=tuple(self.cells[place] for place in places))

    def only_rows(self, places: Sequence[int]) -> "Grid":
        cells = tuple(tuple(column[place] for place in places) for column in self.cells)
        return replace(self, rows=self.rows.only(places), cells=cells)

    def transposed(self) -> "Grid":
        return replace(self, rows=self.columns, columns=self.rows, cells=tuple(zip(*self.cells, strict=True)))


def terminal_text(table: Table | Listing, *, width: int, escape: Callable[[str], str] = str) -> Text:
    """Return the table as styled text whose lines are at most `width` columns wide.

    escape: applied to every text of the table, which may contain control characters. A single column that is wider than
    the terminal with its keys stays so.
    """
    sheet = sheet_of(table, Markup(escape=escape))
    whole, tones = _grid_of(sheet), dict[str, Tone]()
    if isinstance(table, Listing):
        words = frozenset(label[0] for label in whole.columns.labels if label[0] in table.frame) - set(table.units)
        whole, tones = _answer_first(replace(whole, words=words), table, width), table.tones
    whole = _fold(whole)
    text = Text()
    conditions = ", ".join(filter(None, [sheet.conditions, *whole.heading]))
    for shown, style in ((sheet.caption, "bold"), (conditions, "dim")):
        for line in filter(None, shown.split("\n")):
            text.append(_filled(line, width), style)
    shared = set(whole.heading)
    for part in _parts(whole, width):
        text.append("\n" if text else "")
        if own := [words for words in part.heading if words not in shared]:
            text.append(_filled(", ".join(own), width), "bold")
        for drawn in _draw(part, tones):
            text.append_text(drawn)
    text.append("\n" if sheet.notes else "")
    for note in sheet.notes:
        text.append(_filled(note, width))
    return text


def _filled(text: str, width: int) -> str:
    indent = " " * (text.index("] ") + 2) if re.match(r"\[\w+\] ", text) else ""
    return fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) + "\n"


def _grid_of(sheet: Sheet) -> Grid:
    cells = sheet.cells
    return Grid(
        rows=Axis(names=tuple(axis_names(cells.index)), labels=tuple(map(tuple, cells.index))),
        columns=Axis(names=tuple(axis_names(cells.columns)), labels=tuple(map(tuple, cells.columns))),
        cells=tuple(zip(*cells.itertuples(index=False, name=None), strict=True)),
    )


def _answer_first(grid: Grid, listing: Listing, width: int) -> Grid:
    """The columns with those of `Listing.answer` first, and a bar behind the ratio."""
    names = [label[0].split(" (")[0] for label in grid.columns.labels]
    first = [names.index(name) for name in listing.answer]
    shown = grid.only_columns([*first, *(place for place in range(len(names)) if place not in first)])
    if not listing.bars:
        return shown
    drawn = bars(listing.frame[listing.bars].to_numpy(float, na_value=np.nan), width=11 if width >= 100 else 7)
    place = listing.answer.index(listing.bars) + 1
    labels = (*shown.columns.labels[:place], (drawn.header,), *shown.columns.labels[place:])
    cells = (*shown.cells[:place], tuple(drawn.texts), *shown.cells[place:])
    return replace(shown, columns=replace(shown.columns, labels=labels), cells=cells)


def _parts(grid: Grid, width: int) -> list[Grid]:
    """The table in parts that fit, each with the heading of what distinguishes it."""
    ways = [grid, replace(grid, plain=False)]
    if len(grid.rows.labels) <= MOST_TRANSPOSED:
        ways += [grid.transposed(), replace(grid.transposed(), plain=False)]
    for way in chain(ways, (_with_short_texts(replace(grid, plain=False), limit) for limit in LONG_TEXTS)):
        if _width(way) <= width:
            return [way]
    sections = _sections(_with_short_texts(replace(grid, plain=False), SHORT), width)
    return [part for section in sections for part in _columns_that_fit(_fold(section), width)]


def _sections(grid: Grid, width: int) -> list[Grid]:
    """The rows in sections by their first keys, until the other keys leave room for the cells."""
    keys_width = sum(column.width + len(GAP) for column in _drawn_columns(grid)[: len(grid.rows.names)])
    if len(grid.rows.names) == 1 or keys_width <= MOST_KEYS * width:
        return [grid]
    found = []
    for value, places in groupby(range(len(grid.rows.labels)), key=lambda place: grid.rows.labels[place][0]):
        section = grid.only_rows(list(places))
        words = f"{grid.rows.names[0]} {value}".replace("\n", "")
        section = replace(section, rows=section.rows.without(0), heading=(*grid.heading, words))
        found += _sections(section, width)
    return found


def _columns_that_fit(grid: Grid, width: int) -> Iterator[Grid]:
    """The table in groups of columns: whole groups of the outermost column key, or else single columns."""
    labels = grid.columns.labels
    groups = [list(each) for _, each in groupby(range(len(labels)), key=lambda place: labels[place][0])]
    if any(_width(_fold(grid.only_columns(group))) > width for group in groups):
        groups = [[place] for place in range(len(labels))]
    taken: list[int] = []
    for group in groups:
        if taken and _width(grid.only_columns([*taken, *group])) > width:
            yield _fold(grid.only_columns(taken))
            taken = []
        taken += group
    yield _fold(grid.only_columns(taken))


def _fold(grid: Grid) -> Grid:
    """Move keys that are the same in all rows, or in all columns, into the heading. One key stays on each side."""
    if len(grid.rows.labels) == 1:
        return grid
    for side in ("rows", "columns"):
        level = 0
        while level < len((axis := grid.rows if side == "rows" else grid.columns).names):
            values = {label[level] for label in axis.labels}
            if len(values) > 1 or len(axis.names) == 1:
                level += 1
                continue
            words = values.pop() if axis.names[level] == "value" else f"{axis.names[level]} {values.pop()}"
            heading = (*grid.heading, words.replace("\n", ""))
            grid = (
                replace(grid, rows=axis.without(level), heading=heading)
                if side == "rows"
                else replace(grid, columns=axis.without(level), heading=heading)
            )
    return grid


def _with_short_texts(grid: Grid, limit: int) -> Grid:

    def short(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple("\n".join(wrap(text, limit)) if len(text) > limit else text for text in texts)

    rows = replace(grid.rows, labels=tuple(map(short, grid.rows.labels)))
    return replace(grid, rows=rows, cells=tuple(map(short, grid.cells)))


@dataclass(frozen=True, kw_only=True)
class Column:
    header: tuple[str, ...]
    cells: tuple[str, ...]
    width: int
    left: bool


def _drawn_columns(grid: Grid) -> list[Column]:
    """The columns, row keys first. The names of the column keys are above that of the last row key."""
    bodies = [*zip(*grid.rows.labels, strict=True), *grid.cells]
    room = [max(map(_text_width, body), default=0) for body in bodies]
    before = [""] * (len(grid.rows.names) - 1)
    levels = [
        [*before, name, *(label[level] for label in grid.columns.labels)]
        for level, name in enumerate(grid.columns.names)
    ]
    if grid.columns.names == ("",):  # the columns of a listing: their names are beside those of the keys
        levels = [[*grid.rows.names, *levels[0][len(grid.rows.names) :]]]
    else:
        levels.append([*grid.rows.names, *([""] * len(grid.cells))])
    headers: list[list[str]] = [[] for _ in bodies]
    for level in levels:
        lines = [[text] if grid.plain else _broken(text, wide) for text, wide in zip(level, room, strict=True)]
        most = max(map(len, lines))
        for header, own in zip(headers, lines, strict=True):
            header += [*([""] * (most - len(own))), *own]
    left = [*(True for _ in grid.rows.names), *(label[0] in grid.words for label in grid.columns.labels)]
    return [
        Column(header=tuple(header), cells=tuple(body), width=max(wide, *map(_text_width, header)), left=on_left)
        for header, body, wide, on_left in zip(headers, bodies, room, left, strict=True)
    ]


def _broken(text: str, width: int) -> list[str]:
    pieces = re.split(r"(?<=_)(?=[a-z])|(?<=\.)(?=[a-z])|(?= )", text)
    width = max([width, *(cell_len(piece.strip()) for piece in pieces)])
    lines = [""]
    for piece in pieces:
        if cell_len((lines[-1] + piece).strip()) <= width:
            lines[-1] += piece
        else:
            lines.append(piece)
    return [line.strip() for line in lines]


def _width(grid: Grid) -> int:
    columns = _drawn_columns(grid)
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _draw(grid: Grid, tones: dict[str, Tone]) -> Iterator[Text]:
    columns = _drawn_columns(grid)
    for height in range(len(columns[0].header)):
        yield _line([column.header[height] for column in columns], columns, {})
    yield Text(GAP.join("─" * column.width for column in columns) + "\n", "dim")
    for row in range(len(grid.rows.labels)):
        texts = [column.cells[row].split("\n") for column in columns]
        for height in range(max(map(len, texts))):
            yield _line([each[height] if height < len(each) else "" for each in texts], columns, tones)


def _line(texts: Sequence[str], columns: Sequence[Column], tones: dict[str, Tone]) -> Text:
    line = Text()
    for place, (text, column) in enumerate(zip(texts, columns, strict=True)):
        space = " " * (column.width - cell_len(text))
        tone = tones.get(text.split(" [")[0])
        line.append((GAP if place else "") + ("" if column.left else space))
        line.append(text, STYLES[tone] if tone else None)
        line.append(space if column.left else "")
    line.rstrip()
    return line.append("\n")


def _text_width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))
