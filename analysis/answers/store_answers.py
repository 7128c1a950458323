"""What a store answers: every comparison that its results allow, or the range of its numbers."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from lmsweep.analysis.answers.question import DEVICE, STORE, asked_in, measures_of, questions
from lmsweep.analysis.answers.verdicts import Answer, answer
from lmsweep.analysis.data.process_variation import Known, known_variation
from lmsweep.analysis.tables.number_format import size_text
from lmsweep.analysis.tables.pivot import default_layout
from lmsweep.trials.results.environment import ENVIRONMENT_FIELDS

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


def range_headline(frame: pd.DataFrame) -> str:
    """The range of the medians of these results' first measure, in words; empty if they have no medians."""
    for measure in measures_of(frame)[:1]:
        rows = frame[frame["workload"] == measure.workload]
        value, *_ = measure.values or default_layout(rows).values
        found = rows[(rows["phase"] + "." + rows["metric"] == value) & rows["median"].notna()]
        if len(found):
            ends = dict.fromkeys(size_text(one, found["unit"].iloc[0]) for one in found["median"].agg(["min", "max"]))
            many = f", in {len(found)} conditions" * (len(found) > 1)
            return f"{measure.name.capitalize()}: {' to '.join(ends)}{many}"
    return ""
