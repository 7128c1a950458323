"""The sections of the page below the results, each present only if the store has its data.

Some are made by functions of other features (`hasattr(lmsweep, ...)`), and missing where these were taken out.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import lmsweep
from lmsweep.analysis.data.results import Results
from lmsweep.analysis.presets import presets
from lmsweep.analysis.tables.listing import Listing
from lmsweep.analysis.tables.number_format import number_text
from lmsweep.analysis.tables.pivot import Table
from lmsweep.analysis.tables.render import render
from lmsweep.orchestrator.features.report.answers.question import DEVICE, Option
from lmsweep.orchestrator.features.report.answers.verdicts import Answer
from lmsweep.orchestrator.features.report.figures import charts, icicle, pareto, pieces
from lmsweep.orchestrator.features.report.figures.charts import Figure
from lmsweep.orchestrator.features.report.figures.html_table import written
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.spec.config import RequestError

MOST_LINES = 300
"""Preset tables with more lines are left out of the page; `lmsweep table` prints them."""

MOST_EXPLAINED = 3
"""Options of the headline whose difference from the baseline is explained."""

STEP = ["trial_id", "environment_id", "mode", "code"]
"""What identifies a step, whichever workload measured it."""

MOST_RESULTS = 3000
"""The page of a store with more attempts has no preset tables: nearly all would be too long."""


class Drawn(NamedTuple):
    """A section of charts, which is left out if `draw` finds no data for it."""

    id: str
    title: str
    draw: Callable[[Results], Iterator[Figure]]
    words: str
    """The words below the title."""


_DRAWN = (
    Drawn(
        id="pareto",
        title="Pareto front",
        draw=pareto.fronts,
        words="Speed against the peak memory of a step and against its cost. Full circles are the front: no other "
        "combination is as good in time, memory and money, and better in one. The line joins the best of the two.",
    ),
    Drawn("memory", "Memory", charts.timelines, "Memory allocated during one iteration, by category."),
    Drawn(
        id="pieces",
        title="Largest pieces",
        draw=pieces.largest_pieces,
        words="What holds the most memory at the peak, by the line of code that asked for it.",
    ),
    Drawn(
        id="roofline",
        title="Roofline",
        draw=charts.rooflines,
        words="Steps under the limits of their device, as measured or else from its datasheet. Only eager steps with "
        "naive attention are shown: theirs is the minimum memory traffic that is known.",
    ),
    Drawn(
        id="kernels",
        title="Kernels",
        draw=charts.kernels,
        words="Kernel time of a step by part of the model. Hover over a bar to see its longest kernels.",
    ),
    Drawn(
        id="icicle",
        title="Step by part",
        draw=icicle.icicles,
        words="A profiled step from top to bottom: its phases, the parts of the model, their kernels. The wider, the "
        "longer. Drag to zoom in.",
    ),
)


class NamedTable(NamedTuple):
    name: str
    question: str
    caption: str
    conditions: str
    html: str
    csv: str


class Section(NamedTuple):
    id: str
    """Anchor of its heading."""
    title: str
    words: str
    """The words below the title."""
    figures: Sequence[Figure] = ()
    tables: Sequence[NamedTable] = ()


class Beside(NamedTuple):
    """A store's results beside published numbers: what `lmsweep.beside` says, by table, and cell by cell."""

    summary: str
    brief: Sequence[Listing]
    cells: Sequence[Listing]


BESIDE = "As printed by lmsweep compare --with published."


def sections_of(results: Results, published: Beside | None, found: Answer | None) -> list[Section]:
    """Return the sections for which these results have data, in the order of the page.

    published: the results beside published numbers, if they were asked for and have counterparts.
    """
    made = [
        _causes(results, found),
        _beside(published),
        _what_fits(results),
        *(Section(one.id, one.title, one.words, _figures(one.draw, results)) for one in _DRAWN),
        _preset_tables(results),
        _environments(found),
    ]
    return [section for section in made if section.figures or section.tables]


def _causes(results: Results, found: Answer | None) -> Section:
    """What the difference of a step consists of, for the first options of the headline that were profiled."""
    tables: list[NamedTable] = []
    if found and hasattr(lmsweep, "explain_steps"):
        for option in found.question.options[1:][:MOST_EXPLAINED]:
            with suppress(RequestError):  # the store lacks profiles of this option, or of the baseline
                causes = _explained(results, found, option)
                tables.append(_named(causes, option.name, "As printed by lmsweep compare --explain."))
    words = (
        "Kernels by part of the model and phase: the parts, idle time and what is unexplained add up to the difference."
    )
    return Section("causes", "What the difference consists of", words, tables=tables)


def _explained(results: Results, found: Answer, option: Option) -> Listing:
    question, kernels = found.question, results.details("kernels", "profile")
    baseline, variation = question.options[0], question.variation
    between = {name: (baseline.values[name], option.values[name]) for name in question.fields}
    steps = [one.rows[STEP].drop_duplicates() for one in (baseline, option)]
    before, after = (results.attempts.merge(of_side, on=STEP) for of_side in steps)  # all attempts of these steps
    where = (results.store.location, results.store.location)
    differing = {name: sides for name, sides in between.items() if sides[0] != sides[1]}
    return lmsweep.explain_steps(
        (before, after), where, between=differing, kernels=kernels, across=question.across, known=variation or {}
    ).listing()


def _beside(published: Beside | None) -> Section:
    tables = []
    if published:
        tables = [_named(one, "with published", BESIDE) for one in published.brief]
        tables += [
            _named(one, f"cells {place}", one.title.splitlines()[-1]) for place, one in enumerate(published.cells, 1)
        ]
    words = "Numbers for the same part of the same model, or the same attention: first by table, then cell by cell."
    return Section("beside", "Side by side", words, tables=tables)


def _environments(found: Answer | None) -> Section:
    """What differs between the environments of two devices."""
    tables = []
    is_of_two = found and found.question.fields == (DEVICE,) and len(found.question.options) == 2
    if found and is_of_two and hasattr(lmsweep, "environment_diff"):
        one, other = found.question.options
        listing = lmsweep.environment_diff(one.rows, other.rows, (one.name, other.name))
        tables = [_named(listing, "environments", "Fields in which the two devices' environments differ.")]
    return Section("differences", "What differs", "Between the environments of the two devices.", tables=tables)


def _what_fits(results: Results) -> Section:
    """For each workload in which trials ran out of memory: how many, and the largest sizes that fitted."""
    tables, sentences = [], []
    known = results.measurements["workload"] if hasattr(lmsweep, "sizes_that_fit") else ()
    for workload in dict.fromkeys(known):
        rows = results.of(workload)
        trials = rows.drop_duplicates(["measurement_id", "environment_id"])
        out = trials[trials["status"].isin([Status.OOM, Status.PREDICTED_OOM])]
        if out.empty:
            continue
        count = f"{len(out)} of {len(trials)} trials of the workload {workload}"
        memory = [f"{number_text(float(size) / 2**30)} GiB" for size in sorted(out["device_memory"].dropna().unique())]
        sentences.append(f"{count} did not fit{' into ' + ' or '.join(memory) if memory else ''}.")
        listing = lmsweep.sizes_that_fit(rows, "Largest sizes that fitted, and smallest that did not")
        question = (
            f"Context lengths and batch sizes of the workload {workload}, from the trials that ran out of memory."
        )
        tables.append(_named(listing, f"what fits: {workload}", question))
    return Section("fits", "What fits", " ".join(sentences), tables=tables)


def _figures(draw: Callable[[Results], Iterator[Figure]], results: Results) -> list[Figure]:
    with suppress(RequestError):  # the store has no data for this section
        return list(draw(results))
    return []


def _preset_tables(results: Results) -> Section:
    tables = []
    is_large = results.measurements["attempt_id"].nunique() > MOST_RESULTS
    for name, preset in {} if is_large else presets().items():
        with suppress(RequestError):  # the store lacks the results that this table shows
            if len(table := preset.make(results)) <= MOST_LINES:
                tables.append(_named(table, name, preset.question))
    return Section("tables", "Preset tables", "As printed by lmsweep table --preset NAME.", tables=tables)


def _named(table: Table | Listing, name: str, question: str) -> NamedTable:
    return NamedTable(name, question, *written(table), render(table, "csv"))
