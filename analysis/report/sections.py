"""The parts of the page below the results: each is there where the store holds what it shows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lmsweep.analysis.comparison.side_by_side import beside
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets import PRESETS
from lmsweep.analysis.report import charts
from lmsweep.analysis.report.charts import Figure
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.render import render
from lmsweep.analysis.tables.text_table import Markup, sheet_of
from lmsweep.trials.spec.config import RequestError

T = TypeVar("T")

MOST_LINES = 300
"""Lines of a table that has a name; a longer one is not in the page, but `lmsweep table` prints it."""

MOST_RESULTS = 3000
"""Of a store whose tables are made to see how long they are; those of a larger one would all be too long."""


@dataclass(frozen=True, kw_only=True)
class NamedTable:
    name: str
    question: str
    caption: str
    conditions: str
    """What all of its cells have in common; may be empty."""
    html: str
    csv: str


@dataclass(frozen=True, kw_only=True)
class Section:
    id: str
    title: str
    words: str
    figures: list[Figure] = field(default_factory=list)
    """The reader chooses which of them is shown."""
    tables: list[NamedTable] = field(default_factory=list)


def sections_of(results: Results, others: Sequence[str] = ()) -> list[Section]:
    """The sections for which this store holds data, in the order of the page.

    others: names for `lmsweep.analysis.comparison.side_by_side`, whose numbers stand beside the store's. Raises
    RequestError for one that is not known or has no counterpart.
    """
    found = [
        Section(
            id="memory",
            title="Memory",
            words="What one iteration holds, from one allocation to the next, and for what.",
            figures=_figures(charts.timelines, results.store),
        ),
        Section(
            id="roofline",
            title="Roofline",
            words="Steps under the limits of their device, as measured or else of its datasheet. A step stands here "
            "where the bytes that it cannot but move are known: eager, with naive attention.",
            figures=_figures(charts.rooflines, results.measurements),
        ),
        Section(
            id="kernels",
            title="Kernels",
            words="Where the time of a step goes, part by part of the model. A bar names its longest kernels.",
            figures=_figures(charts.kernels, results),
        ),
        Section(
            id="beside",
            title="Beside others",
            words="The same part of the same model, or the same attention, at the same context. What differs besides "
            "stands in each line.",
            tables=[
                _named(beside(results.measurements, name), f"beside {name}", "As lmsweep compare --with shows it.")
                for name in others
            ],
        ),
        Section(
            id="tables",
            title="Tables by name",
            words="As lmsweep table --preset NAME prints them.",
            tables=list(_named_tables(results)),
        ),
    ]
    return [section for section in found if section.figures or section.tables]


def _figures(draw: Callable[[T], Iterator[Figure]], source: T) -> list[Figure]:
    try:
        return list(draw(source))
    except RequestError:  # the store holds none of this
        return []


def _named_tables(results: Results) -> Iterator[NamedTable]:
    if results.measurements["attempt_id"].nunique() > MOST_RESULTS:
        return
    for name, preset in PRESETS.items():
        try:
            table = preset.make(results)
        except RequestError:  # the store does not hold what this table shows
            continue
        if _lines(table) <= MOST_LINES:
            yield _named(table, name, preset.question)


def _named(table: Table | Listing, name: str, question: str) -> NamedTable:
    words = sheet_of(table, Markup())
    return NamedTable(
        name=name,
        question=question,
        caption=words.caption,
        conditions=words.conditions,
        html=render(table, "html"),
        csv=render(table, "csv"),
    )


def _lines(table: Table | Listing) -> int:
    return len(table.median if isinstance(table, Table) else table.frame)
