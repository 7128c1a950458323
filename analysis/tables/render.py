"""Renders a table as plain text, Markdown, LaTeX, Typst or HTML, and its numbers as CSV or JSON."""

import json
import math
import re
from collections.abc import Callable
from importlib.resources import files
from itertools import chain
from textwrap import indent
from typing import Any

import pandas as pd

import lmsweep
from lmsweep.analysis.tables.listing import HIGH, LOW, Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.text_table import (
    HTML,
    MORE_ON_FLAGS,
    Markup,
    Sheet,
    axis_names,
    header_of_keys,
    sheet_of,
)
from lmsweep.trials.results.outcome import Flag
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.suggestions import choices


def render(table: Table | Listing, output_format: str) -> str:
    """Return the table as text, markdown, latex (with booktabs), typst, html (a fragment), csv or json.

    CSV and JSON have one entry per result in SI units; the others choose one unit per value, write medians with 95 %
    intervals, and refer with letters to the flags and reasons below the table. Raises RequestError for others.
    """
    if output_format not in FORMATS:
        raise RequestError(f"--format {output_format}: no such format{choices(output_format, list(FORMATS))}")
    return FORMATS[output_format](table)


def page_css() -> str:
    return (files(__package__) / "page.css").read_text("utf-8")


def answer_page(package: str, name: str, **values: object) -> str:
    """Return the page of one answer, whose template `name` lies in a package and extends page.html."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package, ""), PackageLoader(__package__, "")])
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template(name).render(values, css=page_css(), version=lmsweep.__version__)


def _text(table: Table | Listing) -> str:
    sheet = sheet_of(table, Markup())
    keys, levels = axis_names(sheet.cells.index), axis_names(sheet.cells.columns)
    beside_keys = [] if levels == [""] else [""]  # in a pivot, the last line has the names of row keys
    of_columns = [[*column, *beside_keys] for column in sheet.cells.columns]
    headers = ["\n".join(lines) for lines in (*header_of_keys(keys, levels), *of_columns)]
    title = "\n".join(filter(None, [sheet.caption, sheet.conditions]))
    body = _plain_table(sheet, headers, "simple")
    notes = "\n".join([*sheet.notes, *[MORE_ON_FLAGS] * sheet.has_flags])
    return "\n\n".join(filter(None, [title, body, notes])) + "\n"


def _markdown(table: Table | Listing) -> str:
    # Markdown takes underscores inside words, and brackets without a link, literally.
    sheet = sheet_of(table, Markup(escape=lambda text: re.sub(r"([\\`*<>|])", r"\\\1", text)))
    headers = [*axis_names(sheet.cells.index), *(" / ".join(column) for column in sheet.cells.columns)]
    title = [f"**{sheet.caption}**", sheet.conditions]
    return "\n\n".join(filter(None, [*title, _plain_table(sheet, headers, "pipe"), *sheet.notes])) + "\n"


def _latex(table: Table | Listing) -> str:
    mark = r"\textsuperscript{{{}}}"
    sheet = sheet_of(table, Markup(escape=escape_latex, mark=mark))
    tabular = _styled(sheet).to_latex(
        hrules=True,
        column_format="l" * sheet.cells.index.nlevels + "r" * sheet.cells.shape[1],
        multicol_align="c",
        multirow_align="naive",  # the other choices need another package
    )
    caption = ". ".join(filter(None, [sheet.caption, sheet.conditions]))
    notes = [f"\\par\\smallskip\\footnotesize {note}" for note in sheet.notes]
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", tabular.rstrip(), *notes, r"\end{table}"]
    return "\n".join(lines) + "\n"


def _typst(table: Table | Listing) -> str:
    sheet = sheet_of(table, Markup(escape=escape_typst, mark="#super[{}]"))
    body = indent(_styled(sheet).to_typst().strip().removeprefix("#"), "  ")
    caption = ". ".join(filter(None, [sheet.caption, sheet.conditions]))
    figure = f"#figure(\n{body},\n  caption: [{caption}],\n)\n"
    return figure + "".join(f"\n#text(size: 0.8em)[{note}]\n" for note in sheet.notes)


def _html(table: Table | Listing) -> str:
    sheet = sheet_of(table, HTML)
    styler = _styled(sheet).set_caption("<br>".join(filter(None, [sheet.caption, sheet.conditions])))
    notes = "".join(f"<p>{note}</p>\n" for note in sheet.notes)
    return str(styler.to_html(exclude_styles=True)).rstrip() + "\n" + notes


_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]*(e[+-]?\d+)?$)")
"""The beginning of a formula; not a number with a sign, and not a sign alone."""


def _csv(table: Table | Listing) -> str:
    if isinstance(table, Table):
        frame, noted = _long(table), {"flags"}
    else:
        ends = ("", LOW, HIGH)  # a value, and the columns of its interval
        names = {f"{name}{end}": f"{name}{end} ({unit})" for name, unit in table.units.items() for end in ends}
        frame, noted = table.frame.rename(columns=names), {"flags", *chain.from_iterable(table.footnotes.values())}
    for name in noted & {*frame}:
        frame[name] = [one if isinstance(one, str) else " ".join(one) for one in frame[name]]
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    frame = frame.assign(**{name: frame[name].map(_no_formula) for name in texts})
    return frame.to_csv(index=False, lineterminator="\n")


def _long(table: Table) -> pd.DataFrame:
    keys = [*table.rows, *table.cols, "value"]
    long = table.cells[[*keys, "status", "median", "low", "high", "flags", "reason"]].reset_index(drop=True)
    long.insert(len(keys), "unit", long["value"].map(table.units))
    return long


def _no_formula(value: object) -> object:
    """Mark a text that a spreadsheet would run as a formula with an apostrophe: an untrusted store may hold one."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _json(table: Table | Listing) -> str:
    content: dict[str, Any] = {"title": table.title, "conditions": table.conditions}
    if isinstance(table, Listing):
        content |= {"units": table.units, "results": table.frame.to_dict("records")}
    else:  # differing: keys in which results differ, though they are neither rows nor columns
        content |= {"differing": table.differing, "results": _long(table).to_dict("records")}
    shown = {str(flag) for row in content["results"] for flag in row.get("flags") or ()}
    advice = {flag.value: flag.advice for flag in Flag if flag.value in shown}
    content |= {"flags": advice, "notes": list(table.notes)}
    return json.dumps(plain_json(content), indent=2, ensure_ascii=False) + "\n"


def plain_json(value: object) -> object:
    """Return the value in JSON's types: null for what is unknown or infinite."""
    if isinstance(value, dict):
        return {str(key): plain_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(one) for one in value]
    if hasattr(value, "item"):  # a number of NumPy
        value = value.item()
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, (bool, int, float)) else str(value)


FORMATS: dict[str, Callable[[Table | Listing], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
    "typst": _typst,
    "csv": _csv,
    "html": _html,
    "json": _json,
}
"""To add a format, write a function and add a line here."""


for _kind in (Table, Listing):  # notebooks draw them
    _kind._repr_html_ = _html  # type: ignore[union-attr]


def _styled(sheet: Sheet) -> Any:
    cells = sheet.cells
    if cells.columns.nlevels == 1:
        cells = cells.set_axis(cells.columns.get_level_values(0), axis="columns")
    return cells.style


def _plain_table(sheet: Sheet, headers: list[str], style: str) -> str:
    from tabulate import tabulate

    keys = sheet.cells.index.nlevels
    body = [[*key, *texts] for key, texts in zip(sheet.cells.index, sheet.cells.to_numpy(), strict=True)]
    sides = ["left" if style == "simple" and label[0] in sheet.words else "right" for label in sheet.cells.columns]
    alignment = ["left"] * keys + sides  # keys, and in plain text words too, are on the left; all else on the right
    return tabulate(body, headers, tablefmt=style, disable_numparse=True, colalign=alignment)


def escape_latex(text: str) -> str:
    words = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    words |= {"<": r"\textless{}", ">": r"\textgreater{}"}  # the default font encoding has other signs there
    return re.sub(r"[\\~^&%$#_{}<>]", lambda found: words.get(found[0], "\\" + found[0]), text)


def escape_typst(text: str) -> str:
    return re.sub(r"([\\#$*_`<>@~\[\]/=+\-])", r"\\\1", text)
