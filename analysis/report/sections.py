"""The sections of the page below the results, each present only if the store has its data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lmsweep.analysis.comparison.compare import compare, select_sides
from lmsweep.analysis.comparison.side_by_side import beside
from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets import PRESETS
from lmsweep.analysis.presets.layout import in_order
from lmsweep.analysis.report import charts
from lmsweep.analysis.report.charts import Figure
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.render import render
from lmsweep.analysis.tables.text_table import Markup, sheet_of
from lmsweep.trials.spec.config import RequestError

T = TypeVar("T")

MOST_LINES = 300
"""Preset tables with more lines are left out of the page; `lmsweep table` prints them."""

MOST_DEVICES = 4
"""A store with more devices has no section that compares them; `lmsweep compare` does."""

MOST_RESULTS = 3000
"""The page of a store with more attempts has no preset tables: nearly all would be too long."""


@dataclass(frozen=True, kw_only=True)
class NamedTable:
    """A preset table, or a table of times next to others."""

    name: str
    """Shown in the page, and the name of the CSV file."""
    question: str
    """The question that the table answers, in one line."""
    caption: str
    """What the cells show."""
    conditions: str
    """The keys that have the same value in all cells; may be empty."""
    html: str
    """The table as an HTML fragment."""
    csv: str
    """The table as CSV, for download."""
    open: bool = False
    """Whether the table is shown before the reader opens it."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the page."""

    id: str
    """The anchor of its heading."""
    title: str
    """Its heading."""
    words: str
    """A sentence or two below the heading."""
    figures: list[Figure] = field(default_factory=list)
    """Its charts, of which the reader chooses one to show."""
    tables: list[NamedTable] = field(default_factory=list)
    """Its tables, each of which can be opened."""


def sections_of(results: Results, others: Sequence[str] = ()) -> list[Section]:
    """Return the sections for which this store has data, in the order of the page.

    others: names for `lmsweep.analysis.comparison.side_by_side`, whose times are shown next to the store's. Raises
    RequestError for an unknown name, and for one without a counterpart.
    """
    found = [
        _across_devices(results),
        Section(
            id="memory",
            title="Memory",
            words="Memory allocated during one iteration, by category.",
            figures=_figures(charts.timelines, results.store),
        ),
        Section(
            id="roofline",
            title="Roofline",
            words="Steps under the limits of their device, as measured or else from its datasheet. Only eager steps "
            "with naive attention are shown: theirs is the minimum memory traffic that is known.",
            figures=_figures(charts.rooflines, results.measurements),
        ),
        Section(
            id="kernels",
            title="Kernels",
            words="Kernel time of a step by part of the model. Hover over a bar to see its longest kernels.",
            figures=_figures(charts.kernels, results),
        ),
        Section(
            id="beside",
            title="Side by side",
            words="Times of the same part of the same model, or of the same attention, at the same context length. "
            "Device time comes first if both sides have it. Footnotes name every other condition that differs or is "
            "not stated, and the caveats of published numbers.",
            tables=[
                _named(
                    beside(results.measurements, name),
                    f"with {name}",
                    f"As printed by lmsweep compare --with {name}.",
                )
                for name in others
            ],
        ),
        Section(
            id="tables",
            title="Preset tables",
            words="As printed by lmsweep table --preset NAME.",
            tables=list(_named_tables(results)),
        ),
    ]
    return [section for section in found if section.figures or section.tables]


def _across_devices(results: Results) -> Section:
    """Each device of the store against the first, by device time; without tables if no cell ran on both."""
    devices = list(in_order(results.measurements.drop_duplicates("device_name"), ["device_name"])["device_name"])
    tables, sentences = [], []
    if 1 < len(devices) <= MOST_DEVICES and results.measurements["attempt_id"].nunique() <= MOST_RESULTS:
        processes = load(results.store, pooled=False)
        for device in devices[1:]:
            sides = select_sides(processes, {"device_name": devices[0]}, {"device_name": device})
            try:
                found = compare(sides.baseline, sides.contrast, between=sides.between, across=("driver_version",))
            except RequestError:  # no configuration ran on both devices with the same software
                continue
            against = f"{device} against {devices[0]}"
            sentences.append(f"{against}, {found.summary or f'{len(found.frame)} cells'}.")
            if len(found.frame) <= MOST_LINES:
                question = "Ratio and verdict of each cell, as printed by lmsweep compare."
                tables.append(replace(_named(_narrowed(found.listing()), against, question), open=True))
    return Section(id="devices", title="Across devices", words=" ".join(sentences), tables=tables)


def _narrowed(listing: Listing) -> Listing:
    """A comparison without what the section says above it, so that the verdicts fit beside the ratios."""
    frame = listing.frame.drop(columns=["processes", "p"], errors="ignore")
    units = {name: unit for name, unit in listing.units.items() if name in frame}
    title = listing.title.partition("\n")[0]
    values = frame["value"].unique()
    if len(values) > 1 or len(listing.keys) == 1:
        return replace(listing, title=title, frame=frame, units=units)
    keys = [key for key in listing.keys if key != "value"]
    return replace(listing, title=f"{values[0]}, {title}", frame=frame.drop(columns="value"), keys=keys, units=units)


def _figures(draw: Callable[[T], Iterator[Figure]], source: T) -> list[Figure]:
    try:
        return list(draw(source))
    except RequestError:  # the store has no data for this section
        return []


def _named_tables(results: Results) -> Iterator[NamedTable]:
    if results.measurements["attempt_id"].nunique() > MOST_RESULTS:
        return
    for name, preset in PRESETS.items():
        try:
            table = preset.make(results)
        except RequestError:  # the store lacks the results that this table shows
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
