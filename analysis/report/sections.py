"""The sections of the page below the results, each present only if the store has its data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lmsweep.analysis.comparison.side_by_side import NoCounterpartError, beside
from lmsweep.analysis.data.columns import in_order
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.metrics.scaling import frontier
from lmsweep.analysis.presets import PRESETS
from lmsweep.analysis.report import charts, icicle, pareto, pieces
from lmsweep.analysis.report.charts import Figure
from lmsweep.analysis.report.first_answer import Answer
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.number_format import number_text
from lmsweep.analysis.tables.pivot import Table, common_conditions, varying_keys
from lmsweep.analysis.tables.render import render
from lmsweep.analysis.tables.text_table import Markup, sheet_of
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError

T = TypeVar("T")

MOST_LINES = 300
"""Preset tables with more lines are left out of the page; `lmsweep table` prints them."""

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


def beside_section(results: Results, others: Sequence[str]) -> list[Section]:
    """Return the section that shows the store's times next to those of `others`, all open; none without others.

    others: names for `lmsweep.analysis.comparison.side_by_side`. Raises RequestError for an unknown name.
    """
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
        tables.append(replace(_named(listing, f"with {name}", question), open=True))
    return [Section(id="beside", title="Side by side", words=" ".join(words if tables else words[1:]), tables=tables)]


def sections_of(results: Results, answer: Answer | None) -> list[Section]:
    """Return the sections for which this store has data, in the order of the page.

    answer: how its devices compare, if there are several.
    """
    found = [
        _across_devices(answer),
        _what_fits(results),
        Section(
            id="pareto",
            title="Pareto front",
            words="Speed against the peak memory of a step and against its cost. Full circles are the front: no other "
            "cell is as good in time, memory and money, and better in one. The line joins the best in the two shown.",
            figures=_figures(pareto.fronts, results),
        ),
        Section(
            id="memory",
            title="Memory",
            words="Memory allocated during one iteration, by category.",
            figures=_figures(charts.timelines, results),
        ),
        Section(
            id="pieces",
            title="Largest pieces",
            words="What holds the most memory at the peak, by the line of code that asked for it.",
            figures=_figures(pieces.largest_pieces, results),
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
            id="icicle",
            title="Step by part",
            words="A profiled step from top to bottom: its phases, the parts of the model, their kernels. The wider, "
            "the longer. Drag to zoom in.",
            figures=_figures(icicle.icicles, results),
        ),
        Section(
            id="tables",
            title="Preset tables",
            words="As printed by lmsweep table --preset NAME.",
            tables=list(_named_tables(results)),
        ),
    ]
    return [section for section in found if section.figures or section.tables]


def _across_devices(answer: Answer | None) -> Section:
    """The comparisons with the first device as tables; those that are too long are left to the command."""
    if answer is None:
        return Section(id="devices", title="Across devices", words="")
    tables = []
    for pair in answer.pairs:
        if pair.baseline == 0 and pair.listing is not None and len(pair.listing.frame) <= MOST_LINES:
            against = f"{pair.measure}: {answer.sides[pair.contrast].name} against {answer.sides[0].name}"
            question = "Ratio and verdict of each cell, as printed by lmsweep compare."
            tables.append(_named(_narrowed(pair.listing), against, question))
    return Section(
        id="devices",
        title="Across devices",
        words="The cells of the first answer as tables, with intervals.",
        tables=tables,
    )


def _what_fits(results: Results) -> Section:
    """The largest sizes that fitted and the smallest that did not; without tables if nothing ran out of memory."""
    tables, sentences = [], []
    for workload in dict.fromkeys(results.measurements["workload"]):
        rows = results.of(workload)
        trials = rows.drop_duplicates(["measurement_id", "environment_id"])
        out = trials[trials["status"].isin([Status.OOM, Status.PREDICTED_OOM])]
        if out.empty:
            continue
        found = frontier(in_order(rows, varying_keys(rows, ["model", "context_length"], [])))
        keys = [str(name) for name in found if name not in ("largest_ok", "smallest_oom")]
        count = f"{len(out)} of {len(trials)} trials of the workload {workload}"
        memory = [f"{number_text(float(size) / 2**30)} GiB" for size in sorted(out["device_memory"].dropna().unique())]
        sentences.append(f"{count} did not fit{' into ' + ' or '.join(memory) if memory else ''}.")
        listing = Listing(
            title="Largest sizes that fitted, and smallest that did not",
            frame=found.astype({"largest_ok": "Float64", "smallest_oom": "Float64"}),
            keys=keys,
            units={"largest_ok": "1", "smallest_oom": "1"},
            conditions=common_conditions(rows, keys),
            notes=["-: no such size was tried"],
        )
        question = (
            f"Context lengths and batch sizes of the workload {workload}, from the trials that ran out of memory."
        )
        tables.append(replace(_named(listing, f"what fits: {workload}", question), open=True))
    return Section(id="fits", title="What fits", words=" ".join(sentences), tables=tables)


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
