"""Counts a store's results by status, per sweep and device, and by flag."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from lmsweep.analysis.data.pooled_rows import newest_rows
from lmsweep.analysis.tables.listing import Listing
from lmsweep.trials.results.outcome import Flag, Status

MOST_NAMES = 3

_RESULT = ["measurement_id", "environment_id", "workload"]


@dataclass(frozen=True, kw_only=True)
class Counts:
    sweep: str
    device_name: str
    statuses: dict[Status, int]


@dataclass(frozen=True, kw_only=True)
class StatusOutput:
    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}
    results: list[Counts]
    flags: dict[Flag, int]
    """Number of results with each."""


def counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the number of results by status: columns sweep, device_name and one per status that occurs.

    With pooled=False the newest attempt with a final status counts, as for `lmsweep plan`.
    """
    newest = newest_rows(frame, prefer=[status for status in Status if status.is_final])
    results = newest.drop_duplicates(_RESULT)
    table = pd.crosstab([results["sweep"], results["device_name"]], results["status"])
    met = [status.value for status in Status if status in table.columns]
    return table[met].rename_axis(columns=None).reset_index()


def counts_listing(frame: pd.DataFrame, store: str) -> Listing:
    """Return `counts` as a table, with `flag_words` below it."""
    table = counts(frame)
    statuses = [str(name) for name in table if name not in ("sweep", "device_name")]
    return Listing(
        title=f"{store}: {int(table[statuses].to_numpy().sum())} results by status",
        frame=table,
        keys=["sweep", "device_name"],
        units=dict.fromkeys(statuses, "1"),
        notes=flag_words(frame).splitlines(),
    )


def status_output(frame: pd.DataFrame) -> StatusOutput:
    """Return the counts by sweep and device, and the number of results with each flag."""
    found = counts(frame)
    met = [status for status in Status if status in found]
    results = [
        Counts(sweep=line["sweep"], device_name=line["device_name"], statuses={one: int(line[one]) for one in met})
        for line in found.to_dict("records")
    ]
    return StatusOutput(results=results, flags=flag_counts(frame))


def flag_counts(frame: pd.DataFrame) -> dict[Flag, int]:
    """Return how many results have each flag in any of their rows, the most frequent first."""
    counted = _flagged(frame).drop_duplicates([*_RESULT, "flags"])["flags"].value_counts()
    known = {flag.value: flag for flag in Flag}
    return {known[word]: int(count) for word, count in counted.items() if word in known}


def _flagged(frame: pd.DataFrame) -> pd.DataFrame:
    newest = newest_rows(frame)
    rows = newest.loc[newest["flags"].list.len() > 0, [*_RESULT, "phase", "metric", "flags"]]
    names = rows["phase"].astype("object") + "." + rows["metric"].astype("object")
    flagged: pd.DataFrame = rows.assign(flags=rows["flags"].to_list(), name=names).explode("flags")
    return flagged


def flag_words(frame: pd.DataFrame, *, said: str = "") -> str:
    """Return a line for each flag: the number of results, the values that most often have it, and its advice.

    Flags that the text `said` already explains are left out.
    """
    flagged = _flagged(frame)
    lines = []
    for flag, count in flag_counts(frame).items():
        if flag.advice in said:
            continue
        found = Counter(map(str, flagged.loc[flagged["flags"] == flag.value, "name"]))
        names = sorted(found, key=lambda name: (-found[name], not name.startswith("step."), name))
        shown = ", ".join(names[:MOST_NAMES]) + " and others" * (len(names) > MOST_NAMES)
        many = "result is" if count == 1 else "results are"
        lines.append(f"{count} {many} flagged {flag.value}, in {shown}. {flag.advice}")
    return "\n".join(lines)
