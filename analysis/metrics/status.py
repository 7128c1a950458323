"""Counts a store's results by status, per sweep and device, and by flag."""

import pandas as pd

from lmsweep.analysis.data.processes import newest_rows
from lmsweep.trials.results.outcome import Flag, Status

_RESULT = ["measurement_id", "environment_id", "workload"]


def counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the number of results by status: columns sweep, device_name and one per status that occurs.

    frame: from `lmsweep.load`. Each workload of a trial counts once per environment. With pooled=False the counts are
    those that `lmsweep plan` uses: the newest attempt with a final status, or the newest if none has one.
    """
    newest = newest_rows(frame, prefer=[status for status in Status if status.is_final])
    results = newest.drop_duplicates(_RESULT)
    table = pd.crosstab([results["sweep"], results["device_name"]], results["status"])
    met = [status.value for status in Status if status in table.columns]
    return table[met].rename_axis(columns=None).reset_index()


def flag_counts(frame: pd.DataFrame) -> dict[Flag, int]:
    """Return how many results have each flag in any of their rows, the most frequent first; frame: `lmsweep.load`."""
    newest = newest_rows(frame)
    flagged = newest.loc[newest["flags"].list.len() > 0, [*_RESULT, "flags"]]
    each = flagged.assign(flags=flagged["flags"].to_list()).explode("flags").drop_duplicates()
    known = {flag.value: flag for flag in Flag}
    return {known[word]: int(count) for word, count in each["flags"].value_counts().items() if word in known}


def flag_words(frame: pd.DataFrame, *, told: str = "") -> str:
    """Return a line for each flag with the number of results and the flag's advice; empty if no result is flagged.

    Advice that the text `told` already contains is not repeated.
    """
    return "\n".join(
        f"{count} {'result is' if count == 1 else 'results are'} flagged {flag.value}"
        + (f". {flag.advice}" if flag.advice not in told else "")
        for flag, count in flag_counts(frame).items()
    )
