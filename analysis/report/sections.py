"""The sections of the page below the results, each present only if the store has its data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from lmsweep.analysis.comparison.side_by_side import NoCounterpartError, beside
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets import PRESETS
from lmsweep.analysis.presets.limits_tables import sizes_that_fit
from lmsweep.analysis.report import charts, icicle, pareto, pieces
from lmsweep.analysis.report.charts import Figure
from lmsweep.analysis.report.first_answer import Answer
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.number_format import number_text
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.render import render
from lmsweep.analysis.tables.text_table import Markup, sheet_of
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError

MOST_LINES = 300
"""Preset tables with more lines are left out of the page; `lmsweep table` prints them."""

MOST_RESULTS = 3000
"""The page of a store with more attempts has no preset tables: nearly all would be too long."""


_DRAWN: tuple[tuple[str, str, Callable[[Results], Iterator[Figure]], str], ...] = (
    (
        *("pareto", "Pareto front", pareto.fronts),
        "Speed against the peak memory of a step and against its cost. Full circles are the front: no other cell is as "
        "good in time, memory and money, and better in one. The line joins the best in the two shown.",
    ),
    ("memory", "Memory", charts.timelines, "Memory allocated during one iteration, by category."),
    (
        *("pieces", "Largest pieces", pieces.largest_pieces),
        "What holds the most memory at the peak, by the line of code that asked for it.",
    ),
    (
        *("roofline", "Roofline", charts.rooflines),
        "Steps under the limits of their device, as measured or else from its datasheet. Only eager steps with naive "
        "attention are shown: theirs is the minimum memory traffic that is known.",
    ),
    (
        *("kernels", "Kernels", charts.kernels),
        "Kernel time of a step by part of the model. Hover over a bar to see its longest kernels.",
    ),
    (
        *("icicle", "Step by part", icicle.icicles),
        "A profiled step from top to bottom: its phases, the parts of the model, their kernels. The wider, the longer. "
        "Drag to zoom in.",
    ),
)
"""Sections of charts: anchor, title, what draws them, and the words below the title."""


class NamedTable(NamedTuple):
    name: str
    question: str
    caption: str
    conditions: str
    html: str
    csv: str
    open: bool = False
    """Whether the table is shown before the reader opens it."""


class Section(NamedTuple):
    id: str
    title: str
    words: str
    figures: Sequence[Figure] = ()
    tables: Sequence[NamedTable] = ()


def beside_section(results: Results, others: Sequence[str]) -> list[Section]:
    """The times of the store next to those of `others`, if any. Raises RequestError for an unknown name."""
    if not others:
        return []
    words = [
        "Times of the same part of the same model, or of the same attention, at the same context length. Device time "
        "comes first if both sides have it. Footnotes name every other condition that differs or is not stated, and "
        "the caveats of published numbers."
    ]
    tables = []
    for name in others:
        try:
            listing = beside(results.measurements, name)
        except NoCounterpartError as error:
            words.append(f"{error}.")
            continue
        question = f"As printed by lmsweep compare --with {name}."
        tables.append(_named(listing, f"with {name}", question)._replace(open=True))
    return [Section("beside", "Side by side", " ".join(words if tables else words[1:]), tables=tables)]


def sections_of(results: Results, answer: Answer | None) -> list[Section]:
    """Return the sections for which this store has data, in the order of the page."""
    found = [
        _across_devices(answer),
        _what_fits(results),
        *(Section(id_, title, words, _figures(draw, results)) for id_, title, draw, words in _DRAWN),
        Section(
            *("tables", "Preset tables", "As printed by lmsweep table --preset NAME."),
            tables=list(_named_tables(results)),
        ),
    ]
    return [section for section in found if section.figures or section.tables]


def _across_devices(answer: Answer | None) -> Section:
    tables = []
    for pair in answer.pairs if answer else []:
        if answer and pair.baseline == 0 and pair.listing is not None and len(pair.listing.frame) <= MOST_LINES:
            against = f"{pair.measure}: {answer.sides[pair.contrast].name} against {answer.sides[0].name}"
            question = "Ratio and verdict of each cell, as printed by lmsweep compare."
            tables.append(_named(_narrowed(pair.listing), against, question))
    words = "The cells of the first answer as tables, with intervals."
    return Section("devices", "Across devices", words, tables=tables)


def _what_fits(results: Results) -> Section:
    tables, sentences = [], []
    for workload in dict.fromkeys(results.measurements["workload"]):
        rows = results.of(workload)
        trials = rows.drop_duplicates(["measurement_id", "environment_id"])
        out = trials[trials["status"].isin([Status.OOM, Status.PREDICTED_OOM])]
        if out.empty:
            continue
        count = f"{len(out)} of {len(trials)} trials of the workload {workload}"
        memory = [f"{number_text(float(size) / 2**30)} GiB" for size in sorted(out["device_memory"].dropna().unique())]
        sentences.append(f"{count} did not fit{' into ' + ' or '.join(memory) if memory else ''}.")
        listing = sizes_that_fit(rows, "Largest sizes that fitted, and smallest that did not")
        question = (
            f"Context lengths and batch sizes of the workload {workload}, from the trials that ran out of memory."
        )
        tables.append(_named(listing, f"what fits: {workload}", question)._replace(open=True))
    return Section("fits", "What fits", " ".join(sentences), tables=tables)


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


def _figures(draw: Callable[[Results], Iterator[Figure]], results: Results) -> list[Figure]:
    try:
        return list(draw(results))
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
        if len(table.median if isinstance(table, Table) else table.frame) <= MOST_LINES:
            yield _named(table, name, preset.question)


def _named(table: Table | Listing, name: str, question: str) -> NamedTable:
    words = sheet_of(table, Markup())
    return NamedTable(name, question, words.caption, words.conditions, render(table, "html"), render(table, "csv"))
