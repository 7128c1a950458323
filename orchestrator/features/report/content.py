"""What a page holds, before it is drawn: the answers with their headline, the views and the sections."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pkgutil import resolve_name

import pandas as pd

import lmsweep
from lmsweep.analysis.data.columns import check_key
from lmsweep.analysis.data.selection import select
from lmsweep.analysis.metrics.kernels import classified
from lmsweep.analysis.reference import PUBLISHED
from lmsweep.orchestrator.feature import check_function, registered
from lmsweep.orchestrator.features.report.answers.headline import headline_of, lead_of
from lmsweep.orchestrator.features.report.answers.question import Asked, asked_in
from lmsweep.orchestrator.features.report.answers.store_answers import (
    MOST_ANSWERS,
    SOFTWARE,
    answers_of,
    range_headline,
)
from lmsweep.orchestrator.features.report.answers.verdicts import Answer
from lmsweep.orchestrator.features.report.drilled import result_numbers
from lmsweep.orchestrator.features.report.history import headline_of_history, histories
from lmsweep.orchestrator.features.report.joined import Joined, joined, text_as_objects
from lmsweep.orchestrator.features.report.sections import Beside, Section, sections_of
from lmsweep.orchestrator.features.report.summary import Summary, summarize
from lmsweep.orchestrator.features.report.views import View, views_of_answer
from lmsweep.orchestrator.features.report.workload_views import QUESTIONS, views_of_workloads
from lmsweep.trials.analytic.memory_prediction import memory_config, with_value
from lmsweep.trials.analytic.prices import Price, hourly_dollars
from lmsweep.trials.results.stored_config import config_of, environment_of
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.store.store import Store

MOST_LENGTHS = 3
"""Distributions of lengths whose sizes are predicted, each in some seconds."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a page says and shows."""

    results: Joined
    dollars: Mapping[str, float]
    """Device -> its price per hour, where one was given."""
    question: str
    """The question of the sweep, if the headline answers it."""
    first: Answer | None
    """The first answer. The headline is about it, unless the sweep asks for numbers; published numbers come before."""
    headline: str
    details: Sequence[str]
    summary: Summary
    views: Sequence[View]
    sections: Sequence[Section]


@text_as_objects()
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
        dollars = _dollars(results)
        asked = None if history else asked_in(frame)
        answers = _answers(results, asked, across, others)
        first = answers[0] if answers else None
        published = _beside_published(next(iter(results.named.values())).attempts) if PUBLISHED in others else None
        numbers = result_numbers(frame)
        views = [view for one in answers if len(one.cells) for view in views_of_answer(one, numbers)]
        sections: Sequence[Section] = ()
        if not (history and others):  # with both, a device has a result in each store, too many for a table's cell
            views += views_of_workloads(frame, numbers, location if len(results.named) == 1 else "")
            sections = sections_of(results, published, first)
    summary = summarize(frame)
    profile_headline = _profile_headline(results, asked)
    about = _workload_of_numbers(asked, profile_headline)
    compared = first if about is None else None  # the answer that the headline says
    if about is not None:  # the views of its question come first, and what is faster last
        question = QUESTIONS.get(about)
        views.sort(key=lambda view: (question is None or not view.name.startswith(question), view.compared))
    own = None if others else _sweeps_own_headline(frame, location)
    in_numbers = profile_headline or range_headline(_asked_rows(frame, asked)) or summary.headline
    headline, details = own or _headline(compared, in_numbers, published, history=history)
    is_answered = compared is None or bool(compared.question.text)  # else the answer is to another question
    return Content(
        results=results, dollars=dollars, question=asked.ask if asked and is_answered else "", first=first,
        headline=headline, details=details, summary=summary, views=views, sections=sections,
    )  # fmt: skip


def _dollars(results: Joined) -> dict[str, float]:
    kinds = results.attempts[["device_name", "accelerator_type"]].drop_duplicates().astype(object)
    hourly = hourly_dollars(results.prices, kinds.where(kinds.notna(), None).itertuples(index=False, name=None))
    return {name: dollars for (name, _), dollars in hourly.items()}


def _answers(results: Joined, asked: Asked | None, across: Sequence[str], others: Sequence[str]) -> list[Answer]:
    if results.history:
        return histories_of(results, across)
    answers = [*answers_of(results.attempts, across)]
    # An answer without cells says why devices could not be compared. Drop it if nobody asked for that.
    if asked and asked.is_about_numbers and not others:
        return [one for one in answers if len(one.cells)]
    return answers


def _workload_of_numbers(asked: Asked | None, profile_headline: str) -> str | None:
    """Return the workload whose numbers the headline says. None: it says what is faster, if there is an answer."""
    if profile_headline:
        return "profile"
    return asked.where.get("workload") if asked and asked.is_about_numbers else None


def _sweeps_own_headline(frame: pd.DataFrame, location: str) -> tuple[str, Sequence[str]] | None:
    """The headline and its details as the feature words them that has the only sweep of these results, if one does."""
    sweeps = list(frame["sweep"].dropna().unique())
    answering = registered("answers").get(sweeps[0]) if len(sweeps) == 1 else None
    return resolve_name(answering)(location) if answering else None


def _headline(
    compared: Answer | None, in_numbers: str, published: Beside | None, *, history: bool
) -> tuple[str, Sequence[str]]:
    """Return the headline and its details: of the comparison, else of the numbers. Published numbers come before both,
    because the user asked for them with --with; the headline is then the first of the details."""
    headline, details = in_numbers, list[str]()
    if compared:
        headline, said = headline_of_history(compared) if history else headline_of(compared)
        details = [*said, *(safe_sizes(compared) if len(compared.cells) else [])]
    if not (published and published.summary):
        return headline, details
    return published.summary, [f"{headline}.", *details] if headline else details


def _asked_rows(frame: pd.DataFrame, asked: Asked | None) -> pd.DataFrame:
    """The rows that a question about numbers is about; all if it has not been measured."""
    with suppress(RequestError):
        return select(frame, dict(asked.where)) if asked and asked.is_about_numbers else frame
    return frame


def _beside_published(attempts: pd.DataFrame) -> Beside | None:
    check_function("beside", f"a page beside {PUBLISHED}")
    with suppress(RequestError):  # no result has a counterpart
        found = lmsweep.beside(attempts, PUBLISHED)
        return Beside(found.summary, found.brief(), found.cells())
    return None


def histories_of(results: Joined, across: Sequence[str]) -> list[Answer]:
    """Return what changed over time. Raises RequestError if there is one stage only."""
    found = list(histories(results.attempts, (*SOFTWARE, *across)))
    if not found:
        raise RequestError(
            "--history: no device has a combination in two states of the code, or on two days; name further stores, or "
            "measure again later"
        )
    return found[:MOST_ANSWERS]


def _profile_headline(results: Joined, asked: Asked | None) -> str:
    """Which share of a step's kernel time matrix products take, of a store that is about profiles."""
    counts = results.measurements.drop_duplicates("measurement_id")["workload"].value_counts()
    about = asked.where.get("workload") if asked and asked.is_about_numbers else counts.index[0]
    if about != "profile" or "profile" not in counts:
        return ""
    try:
        kernels = classified(results.details("kernels", "profile"))
    except RequestError:
        return ""
    times = kernels.groupby(["measurement_id", "environment_id", "kind"])["time"].sum().unstack(fill_value=0)
    share = 100 * times.get("matmul", 0.0) / times.sum(axis=1)
    ends = dict.fromkeys(f"{one:.0f}" for one in (share.min(), share.max()))
    return f"Matrix products take {' to '.join(ends)} % of a step's kernel time, in {len(share)} profiles"


def safe_sizes(found: Answer) -> Iterator[str]:
    """Yield a sentence for each distribution of lengths: how large the batches of the option may be that comes first,
    in eager mode, as predicted. Nothing where batches are alike, on a CPU, and without PyTorch."""
    claim = lead_of(found).claim
    winner = found.baseline if claim.verdict == "worse" else claim.subject
    rows = next(one.rows for one in found.question.options if one.name == winner)
    rows = rows[rows["lengths"].notna()] if "lengths" in rows else rows[:0]
    if rows.empty or find_spec("torch") is None:
        return
    from lmsweep.orchestrator.planning.largest_fit import frontiers
    from lmsweep.orchestrator.planning.memory_budget import budget

    places = {}  # the memory of a batch of one -> the device's name, and the bytes that are free there
    for row in rows.drop_duplicates(["lengths", "device_name"]).to_dict("records"):
        config, environment = config_of(row), environment_of(row)
        if not (config.varies and config.takes_gpus and config.ddp == "none"):
            continue
        if room := budget(config, environment):
            smallest = replace(with_value(memory_config(config), "batch_size", 1), compile="none")
            places[smallest] = environment.device_name, room
    if not places:
        return
    for one in frontiers(dict(islice(places.items(), MOST_LENGTHS)), "batch_size", None):
        said = one.words or f"not predicted: {one.reason}"
        yield f"Safe size of {winner}, eager, lengths {one.config.lengths}: {said}."
