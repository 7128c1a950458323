"""The parts of the page below the results: each is there where the store holds what it shows."""

from dataclasses import dataclass, field
from typing import Any

from analysis.listing import Listing
from analysis.presets import PRESETS
from analysis.presets.results import Results
from analysis.render import render
from analysis.tables import Table
from trials.spec import RequestError

MOST_LINES = 1000
"""Lines of a table that has a name; a longer one is left out of the page, as `lmsweep table` shows it."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart: what Plotly is to draw."""

    id: str
    title: str
    words: str = ""
    traces: list[dict[str, Any]]
    """Plotly's, and `colour`: a number into the page's colours."""
    layout: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class NamedTable:
    name: str
    words: str
    html: str
    csv: str
    open: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    id: str
    title: str
    words: str
    figures: list[Figure] = field(default_factory=list)
    tables: list[NamedTable] = field(default_factory=list)


def sections_of(results: Results) -> list[Section]:
    """The sections for which this store holds data, in the order of the page."""
    return [section for section in (_named_tables(results),) if section.figures or section.tables]


def _named_tables(results: Results) -> Section:
    tables = []
    for name, preset in PRESETS.items():
        try:
            table = preset.make(results)
        except RequestError:  # the store does not hold what this table shows
            continue
        if _lines(table) <= MOST_LINES:
            words = preset.question
            tables.append(NamedTable(name=name, words=words, html=render(table, "html"), csv=render(table, "csv")))
    return Section(
        id="tables",
        title="Tables by name",
        words="As lmsweep table --preset NAME prints them.",
        tables=tables,
    )


def _lines(table: Table | Listing) -> int:
    return len(table.median if isinstance(table, Table) else table.frame)
