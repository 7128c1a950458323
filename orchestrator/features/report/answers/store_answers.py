"""What a store answers: every comparison that its results allow, or the range of its numbers."""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from lmsweep.analysis.data.columns import NO_VALUE
from lmsweep.analysis.data.pooled_rows import pool
from lmsweep.analysis.data.process_variation import Known, known_variation
from lmsweep.analysis.data.selection import first_values
from lmsweep.analysis.tables.number_format import choose_unit, percent
from lmsweep.orchestrator.features.report.answers.headline import lead_of, lines_of
from lmsweep.orchestrator.features.report.answers.question import DEVICE, STORE, asked_in, measures_of, questions
from lmsweep.orchestrator.features.report.answers.verdicts import Answer, answer
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS, is_absent
from lmsweep.trials.results.outcome import Status

MOST_ATTEMPTS = 3000
"""A store with more attempts has no comparisons of options: they would take too long to make and to read."""

MOST_ANSWERS, MANY_ATTEMPTS = 8, 500
"""Maximum number of comparisons. A store with at least MANY_ATTEMPTS has only the first comparison."""

SOFTWARE = tuple(name for name in ENVIRONMENT_FIELDS if name.endswith("_version") and name != "measuring_version")
"""Fields of the environment that may differ between stores; versions of `measuring_version` measure differently."""


def answers_of(attempts: pd.DataFrame, across: Sequence[str] = (), known: Known | None = None) -> Iterator[Answer]:
    """Yield what these rows of all attempts answer, the answer of the headline first.

    across: keys in which devices may differ, besides those of their software. known: variation of a larger store.
    """
    size = attempts["attempt_id"].nunique()
    if size > MOST_ATTEMPTS and attempts[DEVICE].nunique() < 2:
        return
    several = STORE in attempts and attempts[STORE].nunique() > 1
    free = SOFTWARE if several else ("driver_version",)  # another store was asked for by name, whatever it ran on
    known = known_variation(attempts) if known is None else known
    most = MOST_ANSWERS if size < MANY_ATTEMPTS else 1
    asked, count = asked_in(attempts), 0
    for question in questions(attempts, asked, across, free):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = answer(replace(question, variation=known))
        if found:
            yield found
            count += 1
        if count == most:
            return


def findings(attempts: pd.DataFrame, stored: pd.DataFrame, first: str = "") -> list[str]:
    """Return lines with the question that these rows answer, and what was found: the first answer, its places (a line
    for each condition), and the headlines of the other answers; without an answer, the range of the numbers.

    attempts: some rows of `load(..., pooled=False)`. stored: all rows of the store, which say how far processes differ.
    first: a finding that comes before these.
    """
    could_run = ~attempts["device_name"].map(is_absent) & attempts["status"].ne(Status.UNSUPPORTED.value)
    present = attempts[could_run].reset_index(drop=True)
    answered: dict[tuple[object, ...], Answer] = {}
    for one in answers_of(present, known=known_variation(stored)):
        if one.cells["verdict"].ne("no result").any():
            answered.setdefault(_gain_of(one), one)  # two questions may be about the same gain in other words
    if not answered:
        return [f"found: {line}" for line in dict.fromkeys((first, range_headline(pool(attempts)))) if line]
    best, *others = answered.values()
    if not first and lead_of(best).claim.verdict == "unknown":
        first = differ_words(pool(attempts))
    headline, *places = lines_of(best)
    lines = [best.question.text] if best.question.text else []
    lines += [f"found: {line}" for line in (first, headline) if line]
    lines += places
    lines += [f"found: {lines_of(other)[0]}" for other in others]
    return list(dict.fromkeys(lines))


def differ_words(results: pd.DataFrame) -> str:
    """Return by how much the median steps of equal processes differ, which keeps an answer open; empty if each trial
    ran in one process.

    results: rows pooled over processes. Such differences set no flag if they are due to programs that work between the
    measured iterations, or in another guest of the machine.
    """
    largest = results.loc[(results["phase"] == "step") & (results["metric"] == "time"), "spread"].max()
    if not largest > 0:  # NaN: no trial ran in several processes
        return ""
    return f"processes that do the same work differ by up to {percent(largest)}: more of them would tell"


def _gain_of(found: Answer) -> tuple[object, ...]:
    """What distinguishes the gain that a headline names from others."""
    claim = lead_of(found).claim
    return (found.question.measure.workload, *(f"{number:.9g}" for number in (claim.gain, *claim.interval)))


def range_headline(frame: pd.DataFrame) -> str:
    """The range of the medians of these results' first measure, in words; empty if they have no medians."""
    for measure in measures_of(frame)[:1]:
        rows = frame[frame["workload"] == measure.workload]
        value, *_ = measure.values or first_values(rows)
        found = rows[(rows["phase"] + "." + rows["metric"] == value) & rows["median"].notna()]
        if len(found):
            ends = dict.fromkeys(size_text(one, found["unit"].iloc[0]) for one in found["median"].agg(["min", "max"]))
            many = f", in {len(found)} conditions" if len(found) > 1 else ""
            return f"{measure.name.capitalize()}: {' to '.join(ends)}{many}"
    return ""


def size_text(value: float, unit: str) -> str:
    if math.isnan(value):
        return NO_VALUE
    printed = choose_unit(unit, [value])
    return f"{value / printed.size:.3g} {printed.name}"
