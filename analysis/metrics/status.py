"""Counts a store's results by status, per sweep and device, and by flag."""

import pandas as pd

from lmsweep.analysis.data.processes import newest_rows
from lmsweep.analysis.tables.listing import Listing
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


def counts_listing(frame: pd.DataFrame, store: str) -> Listing:
    """Return `counts` as a table, with `flag_words` below it; frame: `lmsweep.load`, with results."""
    table = counts(frame)
    statuses = [str(name) for name in table if name not in ("sweep", "device_name")]
    return Listing(
        title=f"{store}: {int(table[statuses].to_numpy().sum())} results by status",
        frame=table,
        keys=["sweep", "device_name"],
        units=dict.fromkeys(statuses, "1"),
        notes=flag_words(frame).splitlines(),
    )


def as_json(frame: pd.DataFrame) -> dict[str, object]:
    """Return the counts by sweep and device, and the number of results with each flag; frame: `lmsweep.load`."""
    if frame.empty:
        return {"results": [], "flags": {}}
    found = counts(frame)
    names = [str(name) for name in found if name not in ("sweep", "device_name")]
    results = [
        {
            "sweep": line["sweep"],
            "device_name": line["device_name"],
            "statuses": {name: int(line[name]) for name in names},
        }
        for line in found.to_dict("records")
    ]
    return {"results": results, "flags": {flag.value: count for flag, count in flag_counts(frame).items()}}


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
