"""The states of the user's code in a store: `latest`, `previous` and older ones, by their `code_digest`.

Results that name the same code of the user, as `package.module:name`, belong together; their states are ordered by when
each was last measured. The column `code` holds latest, previous, or the first digits of an older state's digest; it is
null in rows without code of the user.
"""

import warnings
from collections.abc import Collection

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import count_of
from lmsweep.trials.spec.reference import REFERENCES, is_reference
from lmsweep.trials.spec.suggestions import choices

LATEST, PREVIOUS = "latest", "previous"

STATE_COLUMNS = ("code", "code_digest", "code_revision", "code_dirty")

SHOWN_DIGITS = 8
"""Digits of a digest that name an older state."""

LEAST_DIGITS = 4
"""Minimum number of digits to select a state."""


def with_code_states(frame: pd.DataFrame) -> pd.DataFrame:
    digests = frame["code_digest"]
    states = pd.Series(None, frame.index, dtype=object)
    own = digests.notna()
    if own.any():
        # Results with the same references to the user's code are a family, whose states are ordered by age.
        names = frame.loc[own, list(REFERENCES)]
        references = names.where(names.map(is_reference), "")  # without names of lmsweep's own code
        family = references.groupby(list(REFERENCES), sort=False).ngroup()
        measured = frame.loc[own, ["code_digest", "started_at"]].assign(family=family)
        newest = measured.groupby(["family", "code_digest"])["started_at"].max()  # a row for each state of a family
        age_of_state = newest.groupby("family").rank(ascending=False, method="first").rename("age")
        ages = measured.join(age_of_state, on=["family", "code_digest"])["age"]
        states[own] = np.select([ages == 1, ages == 2], [LATEST, PREVIOUS], digests[own].str[:SHOWN_DIGITS])
    return frame.assign(code=states)


def latest_code(frame: pd.DataFrame, named: Collection[str] = ()) -> pd.DataFrame:
    """Return the rows without those of earlier states of the user's code, with a warning.

    named: the columns that a table or its conditions name; all rows are kept if one of STATE_COLUMNS is among them.
    """
    earlier = (frame["code"].notna() & (frame["code"] != LATEST)).to_numpy(dtype=bool)
    if not earlier.any() or {*STATE_COLUMNS} & {*named}:
        return frame
    left_out = frame[earlier]
    results = len(left_out.drop_duplicates(["measurement_id", "environment_id"]))
    states = left_out["code_digest"].nunique()
    warnings.warn(
        f"{count_of(results, 'result')} of {count_of(states, 'earlier state')} of your code are not shown; "
        "`--where code=previous` shows the state before the latest, `--rows code,...` all of them, and "
        "`lmsweep compare --baseline code=previous --contrast code=latest` what changed",
        stacklevel=2,
    )
    return frame[~earlier].reset_index(drop=True)


def rows_of_state(frame: pd.DataFrame, text: str, option: str) -> NDArray[np.bool_]:
    """Return which rows belong to a state: latest, previous, the beginning of a digest or revision, or `-` for no code.

    text: one of these, or several separated by commas. Raises RequestError if there is no such state.
    """
    chosen = np.zeros(len(frame), dtype=bool)
    for word in text.split(","):
        found = _of_word(frame, word)
        if not found.any():
            raise RequestError(f"{option} code={word}: {_why_none(frame, word)}")
        chosen |= found
    return chosen


def _of_word(frame: pd.DataFrame, word: str) -> NDArray[np.bool_]:
    if word == "-":
        return frame["code"].isna().to_numpy(dtype=bool)
    found = frame["code"] == word
    if word not in (LATEST, PREVIOUS) and len(word) >= LEAST_DIGITS:
        for name in ("code_digest", "code_revision"):
            found |= frame[name].astype(object).map(lambda text: isinstance(text, str) and text.startswith(word))
    return found.to_numpy(dtype=bool)


def _why_none(frame: pd.DataFrame, word: str) -> str:
    own = frame[frame["code"].notna()]
    if own.empty:
        return "no such result uses code of your own"
    newest = own.groupby("code_digest")["started_at"].max().sort_values(ascending=False).head(5)
    known = ", ".join(f"{str(digest)[:SHOWN_DIGITS]} ({when:%Y-%m-%d %H:%M} UTC)" for digest, when in newest.items())
    if word == PREVIOUS:
        return (
            f"there is only one state of your code among these results, {known}; edit the code and run the sweep "
            "again to get a second"
        )
    if word == LATEST:
        return f"none of these results has the latest state; the states are {known}"
    return f"there is no such state{choices(word, [LATEST, PREVIOUS])}; digests are {known}"
