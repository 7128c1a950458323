"""How far a store has come: how the workloads of its trials ended, by sweep and device, and what is in doubt."""

import pandas as pd

from lmsweep.analysis.data.processes import newest_rows
from lmsweep.trials.results.outcome import Flag, Status

_RESULT = ["measurement_id", "environment_id", "workload"]


def counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Workloads of trials by how they ended: columns sweep, device_name and one per status met.

    The frame is that of `lmsweep.load`; loaded with pooled=False it counts what `lmsweep plan` goes by: the newest
    attempt with a result or, if none has one, the newest. A workload of a trial counts once per environment.
    """
    newest = newest_rows(frame, prefer=[status for status in Status if status.is_final])
    results = newest.drop_duplicates(_RESULT)
    table = pd.crosstab([results["sweep"], results["device_name"]], results["status"])
    met = [status.value for status in Status if status in table.columns]
    return table[met].rename_axis(columns=None).reset_index()


def flag_counts(frame: pd.DataFrame) -> dict[Flag, int]:
    """How many results of `lmsweep.load` have each flag in any of their rows, those of most results first."""
    newest = newest_rows(frame)
    flagged = newest.loc[newest["flags"].list.len() > 0, [*_RESULT, "flags"]]
    each = flagged.assign(flags=flagged["flags"].to_list()).explode("flags").drop_duplicates()
    known = {flag.value: flag for flag in Flag}
    return {known[word]: int(count) for word, count in each["flags"].value_counts().items() if word in known}


def flag_words(frame: pd.DataFrame, *, told: str = "") -> str:
    """A line for each flag of these results: how many have it, and what to do; empty where none has any.

    Advice that is part of the text `told` is not repeated.
    """
    return "\n".join(
        f"{count} {'result is' if count == 1 else 'results are'} flagged {flag.value}"
        + (f". {flag.advice}" if flag.advice not in told else "")
        for flag, count in flag_counts(frame).items()
    )
