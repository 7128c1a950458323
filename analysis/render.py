"""A table as text: for the terminal, for Markdown, LaTeX, Typst and HTML, and as CSV for machines."""

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from analysis.keys import NO_VALUE, label, nearest
from analysis.numbers import Unit, choose_unit, interval_texts
from analysis.tables import Table
from trials.spec import Flag, RequestError, Status

UNKNOWN = "n/a"
"""A cell whose trial is ok but whose value is not known; a note says why."""

_ADVICE = {flag.value: flag.advice for flag in Flag}


@dataclass(frozen=True, kw_only=True)
class _Markup:
    """How a format writes what is not plain text."""

    escape: Callable[[str], str] = str
    plus_minus: str = "±"
    mark: str = " [{}]"
    """Around the letters that point from a cell to its notes."""


@dataclass(frozen=True, kw_only=True)
class _Sheet:
    """A table in words, escaped for its format."""

    caption: str
    """What the cells show."""
    conditions: str
    """What all of them have in common; may be empty."""
    cells: pd.DataFrame
    """Texts; so are the labels of both axes, MultiIndexes both."""
    notes: list[str]
    """What the letters in the cells stand for, each beginning with its letter."""


def render(table: Table, output_format: str) -> str:
    """The table as `text`, `markdown`, `latex` (needs the package booktabs), `typst`, `html` (a fragment) or `csv`.

    CSV has one line per result, in SI units, and leaves out what the store does not hold. The other formats choose
    one unit per value and write median ± distance to the farther end of its 95 % interval; trials that failed show
    their status, doubts and unknown values a letter that is explained below. Raises RequestError for another format.
    """
    if output_format not in FORMATS:
        raise RequestError(f"--format {output_format}: no such format; {nearest(output_format, list(FORMATS))}")
    return FORMATS[output_format](table)


def _text(table: Table) -> str:
    sheet = _sheet(table, _Markup())
    names, columns = _names(sheet.cells.index), sheet.cells.columns
    # The names of the column keys stand in the corner, beside what they name, above the name of the last row key.
    blank = "\n" * columns.nlevels
    corner = [blank + name for name in names[:-1]] + ["\n".join([*_names(columns), names[-1]])]
    return (
        "\n\n".join(
            [
                "\n".join(filter(None, [sheet.caption, sheet.conditions])),
                _plain_table(sheet, [*corner, *("\n".join([*column, ""]) for column in columns)], "simple"),
                *filter(None, ["\n".join(sheet.notes)]),
            ]
        )
        + "\n"
    )


def _markdown(table: Table) -> str:
    # Underscores inside words and brackets without a link are literal.
    sheet = _sheet(table, _Markup(escape=lambda text: re.sub(r"([\\`*<>|])", r"\\\1", text)))
    headers = [*_names(sheet.cells.index), *(" / ".join(column) for column in sheet.cells.columns)]
    title = [f"**{sheet.caption}**", sheet.conditions]
    return "\n\n".join(filter(None, [*title, _plain_table(sheet, headers, "pipe"), *sheet.notes])) + "\n"


def _latex(table: Table) -> str:
    sheet = _sheet(table, _Markup(escape=_escape_latex, plus_minus=r"$\pm$", mark=r"\textsuperscript{{{}}}"))
    tabular = sheet.cells.style.to_latex(
        hrules=True,
        column_format="l" * sheet.cells.index.nlevels + "r" * sheet.cells.shape[1],
        multicol_align="c",
        multirow_align="naive",  # the others need a package more
    )
    caption = ". ".join(filter(None, [sheet.caption, sheet.conditions]))
    notes = [f"\\par\\smallskip\\footnotesize {note}" for note in sheet.notes]
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", tabular.rstrip(), *notes, r"\end{table}"]
    return "\n".join(lines) + "\n"


def _typst(table: Table) -> str:
    sheet = _sheet(table, _Markup(escape=_escape_typst, mark="#super[{}]"))
    cells = sheet.cells
    if cells.columns.nlevels == 1:  # to_typst would print the tuples of an index of one level
        cells = cells.set_axis(cells.columns.get_level_values(0), axis="columns")
    body = indent(cells.style.to_typst().strip().removeprefix("#"), "  ")
    caption = ". ".join(filter(None, [sheet.caption, sheet.conditions]))
    figure = f"#figure(\n{body},\n  caption: [{caption}],\n)\n"
    return figure + "".join(f"\n#text(size: 0.8em)[{note}]\n" for note in sheet.notes)


def _html(table: Table) -> str:
    sheet = _sheet(table, _Markup(escape=html.escape, mark="<sup>{}</sup>"))
    styler = sheet.cells.style.set_caption("<br>".join(filter(None, [sheet.caption, sheet.conditions])))
    notes = "".join(f"<p>{note}</p>\n" for note in sheet.notes)
    return styler.to_html(exclude_styles=True).rstrip() + "\n" + notes


def _csv(table: Table) -> str:
    contents = {name: getattr(table, name) for name in ("status", "median", "low", "high", "flags", "reason")}
    keys = [*table.status.index.names, *table.status.columns.names]
    levels = list(range(table.status.columns.nlevels))
    long = pd.DataFrame({name: wide.stack(levels) for name, wide in contents.items()}).reset_index()
    long = long[long["status"] != NO_VALUE]
    long.insert(len(keys), "unit", long["value"].map(table.units))
    long["flags"] = long["flags"].map(" ".join)
    return long.to_csv(index=False, lineterminator="\n")


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
    "typst": _typst,
    "csv": _csv,
    "html": _html,
}
"""To add one: a function and a line."""


def _sheet(table: Table, markup: _Markup) -> _Sheet:
    escape = markup.escape
    units = {value: choose_unit(unit, _numbers(table.median, value)) for value, unit in table.units.items() if unit}
    letters = _letters(table)
    names = {value: f"{value} ({units[value].name})" if value in units else value for value in table.units}
    keys: list[Any] = table.median.columns.to_list()
    columns, levels = [(*key[:-1], names[key[-1]]) for key in keys], _names(table.median.columns)
    shows = "median ± 95 % interval"
    if len(names) == 1 and len(levels) > 1:  # one value for all: it goes into the caption
        shows = f"{names[keys[0][-1]]}: {shows}"
        columns, levels = [key[:-1] for key in columns], levels[:-1]
    contents = [getattr(table, name).to_numpy() for name in ("status", "median", "low", "high", "flags", "reason")]
    cells = [
        [
            _cell(*(grid[row, column] for grid in contents), unit=units.get(key[-1]), letters=letters, markup=markup)
            for column, key in enumerate(keys)
        ]
        for row in range(len(table.median))
    ]
    return _Sheet(
        caption=escape(shows).replace("±", markup.plus_minus),
        conditions=escape(", ".join(f"{name} {text}" for name, text in table.conditions.items())),
        cells=pd.DataFrame(
            cells,
            index=_labels(table.median.index, _names(table.median.index), escape),
            columns=_labels(columns, levels, escape),
            dtype=object,
        ),
        notes=[
            markup.mark.format(letter).strip() + " " + escape(f"{what}: {_ADVICE[what]}" if what in _ADVICE else what)
            for what, letter in letters.items()
        ],
    )


def _letters(table: Table) -> dict[str, str]:
    """Every flag and every reason of the table, in order of appearance, and the letter that stands for it."""
    flags = (word for row in table.flags.to_numpy() for words in row for word in words)
    reasons = (reason for row in table.reason.to_numpy() for reason in row if reason)
    noted = dict.fromkeys([*flags, *reasons])
    return {what: chr(ord("a") + i) if i < 26 else str(i) for i, what in enumerate(noted)}


def _cell(
    status: str,
    median: float,
    low: float,
    high: float,
    flags: tuple[str, ...],
    reason: str,
    *,
    unit: Unit | None,
    letters: dict[str, str],
    markup: _Markup,
) -> str:
    notes = [letters[word] for word in (*flags, *filter(None, [reason]))]
    if status != Status.OK:
        text = markup.escape(status)
    elif reason:
        text = markup.escape(UNKNOWN)
    else:
        assert unit is not None, "a value with a number has a unit"
        number, distance = interval_texts(median / unit.size, low / unit.size, high / unit.size)
        text = number if distance is None else f"{number} {markup.plus_minus} {distance}"
    return text + (markup.mark.format(",".join(notes)) if notes else "")


def _numbers(wide: pd.DataFrame, value: str) -> np.ndarray:
    return wide.xs(value, axis="columns", level="value").to_numpy().ravel()


def _names(axis: pd.Index) -> list[str]:
    return [str(name) for name in axis.names]


def _labels(keys: Iterable[tuple[Any, ...]], names: list[str], escape: Callable[[str], str]) -> pd.MultiIndex:
    texts = [tuple(escape(label(value)) for value in key) for key in keys]
    return pd.MultiIndex.from_tuples(texts, names=[escape(name) for name in names])


def _plain_table(sheet: _Sheet, headers: list[str], style: str) -> str:
    keys = sheet.cells.index.nlevels
    body = [[*key, *texts] for key, texts in zip(sheet.cells.index, sheet.cells.to_numpy(), strict=True)]
    alignment = ["left"] * keys + ["right"] * sheet.cells.shape[1]
    return tabulate(body, headers, tablefmt=style, disable_numparse=True, colalign=alignment)


def _escape_latex(text: str) -> str:
    words = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return re.sub(r"[\\~^&%$#_{}]", lambda found: words.get(found[0], "\\" + found[0]), text)


def _escape_typst(text: str) -> str:
    return re.sub(r"([\\#$*_`<>@~\[\]/=+\-])", r"\\\1", text)
