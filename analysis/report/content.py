"""What a page holds, before it is drawn: the answers with their headline, the views and the sections."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pandas as pd

from lmsweep.analysis.comparison.pairs import NoCounterpartError
from lmsweep.analysis.comparison.side_by_side import SideBySide, beside
from lmsweep.analysis.data.columns import check_key
from lmsweep.analysis.data.process_variation import Known, known_variation
from lmsweep.analysis.metrics.kernels import classified
from lmsweep.analysis.reference import PUBLISHED
from lmsweep.analysis.report.answers.headline import headline_of
from lmsweep.analysis.report.answers.history import headline_of_history, histories
from lmsweep.analysis.report.answers.question import DEVICE, Asked, asked_in, measures_of, questions
from lmsweep.analysis.report.answers.verdicts import Answer, answer
from lmsweep.analysis.report.drilled import result_numbers
from lmsweep.analysis.report.joined import STORE, Joined, joined
from lmsweep.analysis.report.sections import Section, sections_of
from lmsweep.analysis.report.summary import Summary, summarize
from lmsweep.analysis.report.views import View, size_text, views_of_answer
from lmsweep.analysis.report.workload_views import QUESTIONS, views_of_workloads
from lmsweep.analysis.tables.pivot import default_layout
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store

MOST_ATTEMPTS = 3000
"""A store with more attempts has no comparisons of options: the page would take too long to make and to read."""

MOST_ANSWERS, MANY_ATTEMPTS = 8, 500
"""Maximum number of comparisons of a page. A store with at least MANY_ATTEMPTS has only the first comparison."""

_SOFTWARE = tuple(name for name in ENVIRONMENT_FIELDS if name.endswith("_version") and name != "measuring_version")
"""Fields of the environment that may differ between stores; versions of `measuring_version` measure differently."""


@dataclass(frozen=True, kw_only=True)
class Content:
    results: Joined
    question: str
    """The question of the sweep, if the headline answers it."""
    first: Answer | None
    """The answer that the headline is about, if it is about one."""
    headline: str
    details: Sequence[str]
    summary: Summary
    views: Sequence[View]
    sections: Sequence[Section]


def content_of(
    store: str | Store,
    others: Sequence[str] = (),
    prices: Sequence[Price] = (),
    across: Sequence[str] = (),
    *,
    history: bool = False,
) -> Content:
    """Return what the page of this store, or of the store at this location, holds.

    others: names for `side_by_side`, shown beside the store. across: keys in which compared devices may differ, besides
    those of their software. history: the page answers what changed from state to state of the user's code, or from date
    to date. Raises RequestError without store or results, for a price that fits no device, and for keys that
    no result has.
    """
    for name in across:
        check_key(name, "--across")
    with warnings.catch_warnings():
        if history:  # earlier states of the code are what it shows
            warnings.filterwarnings("ignore", message=".* earlier state")
        location = store.location if isinstance(store, Store) else store
        results = joined(store, others, prices, history=history)
        frame = results.measurements
        if frame.empty:
            raise RequestError(f"{location} holds no results; add some with: lmsweep run quick --store {location}")
        asked = None if history else asked_in(frame)
        answers = list(histories_of(results, across) if history else answers_of(results.attempts, across))
        if asked and not asked.compare and not others:  # it does not ask for these devices to be compared
            answers = [one for one in answers if len(one.cells)]
        first = answers[0] if answers else None
        published = _beside_published(next(iter(results.named.values())).attempts) if PUBLISHED in others else None
        numbers = result_numbers(frame)
        where = location if len(results.named) == 1 else ""
        views = [view for one in answers if len(one.cells) for view in views_of_answer(one, numbers)]
        sections: Sequence[Section] = ()
        if not (history and others):  # several stores of a device have several results for a cell of a table
            views += views_of_workloads(frame, numbers, where)
            sections = sections_of(results, published, first)
    summary = summarize(frame)
    shares, worded = _profile_headline(results, asked), headline_of_history if history else headline_of
    about = "profile" if shares else asked.where.get("workload") if asked and not asked.compare else None
    answered = first is None or first.question.text or about is not None
    numbers_only = shares or range_headline(frame) or summary.headline
    headline, details = worded(first) if first and about is None else (numbers_only, ())
    if published and published.summary:
        headline, details = published.summary, [f"{headline}."]  # what was asked for comes first
    if about is not None:  # it asks for numbers; what is faster comes after them
        views.sort(key=lambda view: (not view.name.startswith(QUESTIONS.get(about, " ")), view.compared))
    return Content(
        results=results, question=asked.ask if asked and answered else "", first=first, headline=headline,
        details=details, summary=summary, views=views, sections=sections,
    )  # fmt: skip


def _beside_published(attempts: pd.DataFrame) -> SideBySide | None:
    with suppress(NoCounterpartError):
        return beside(attempts, PUBLISHED)
    return None


def answers_of(attempts: pd.DataFrame, across: Sequence[str] = (), known: Known | None = None) -> Iterator[Answer]:
    """Yield what these rows of all attempts answer, the answer of the headline first.

    across: keys in which devices may differ, besides those of their software. known: variation of a larger store.
    """
    size = attempts["attempt_id"].nunique()
    if size > MOST_ATTEMPTS and attempts[DEVICE].nunique() < 2:
        return
    several = STORE in attempts and attempts[STORE].nunique() > 1
    free = _SOFTWARE if several else ("driver_version",)  # another store was asked for by name, whatever it ran on
    known = known_variation(attempts) if known is None else known
    asked, count = asked_in(attempts), 0
    for question in questions(attempts, asked, across, free):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = answer(replace(question, variation=known))
        if found:
            yield found
            count += 1
        if count == (MOST_ANSWERS if size < MANY_ATTEMPTS else 1):
            return


def histories_of(results: Joined, across: Sequence[str]) -> Iterator[Answer]:
    """Yield what changed over time. Raises RequestError if there is one stage only."""
    found = list(histories(results.attempts, (*_SOFTWARE, *across)))
    if not found:
        raise RequestError(
            "--history: no device has a cell in two states of the code, or on two days; name further stores, or "
            "measure again later"
        )
    yield from found[:MOST_ANSWERS]


def range_headline(frame: pd.DataFrame) -> str:
    """The range of the medians of these results' first measure, in words; empty if they have no medians."""
    for measure in measures_of(frame)[:1]:
        rows = frame[frame["workload"] == measure.workload]
        value, *_ = measure.values or default_layout(rows).values
        found = rows[(rows["phase"] + "." + rows["metric"] == value) & rows["median"].notna()]
        if len(found):
            ends = dict.fromkeys(size_text(one, found["unit"].iloc[0]) for one in found["median"].agg(["min", "max"]))
            return f"{measure.name.capitalize()}: {' to '.join(ends)}, in {len(found)} cell{'s' * (len(found) > 1)}"
    return ""


def _profile_headline(results: Joined, asked: Asked | None) -> str:
    """Which share of a step's kernel time matrix products take, of a store that is about profiles."""
    counts = results.measurements.drop_duplicates("measurement_id")["workload"].value_counts()
    about = asked.where.get("workload") == "profile" if asked and not asked.compare else counts.index[0] == "profile"
    if "profile" not in counts or not about:
        return ""
    try:
        kernels = classified(results.details("kernels", "profile"))
    except RequestError:
        return ""
    times = kernels.groupby(["measurement_id", "environment_id", "kind"])["time"].sum().unstack(fill_value=0)
    share = 100 * times.get("matmul", 0.0) / times.sum(axis=1)
    ends = dict.fromkeys(f"{one:.0f}" for one in (share.min(), share.max()))
    return f"Matrix products take {' to '.join(ends)} % of a step's kernel time, in {len(share)} profiles"
