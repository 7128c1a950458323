"""Each trial of a store as a configuration and numbers, as experiment trackers want it."""

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, label
from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.selection import select
from lmsweep.trials.results.outcome import Status


class Summary(NamedTuple):
    """One configuration in one environment."""

    name: str
    config: dict[str, str]
    """Field -> value, of the configuration and of the hardware and software; fields without a value are left out."""
    metrics: dict[str, float]
    """`PHASE.METRIC` -> median in SI units (seconds, bytes, joules). Empty if the trial failed."""
    status: dict[str, str]
    """Workload -> status."""
    flags: tuple[str, ...]
    """Reasons to doubt a number."""


def summaries(store: str, where: Mapping[str, str] | None = None) -> list[Summary]:
    """Return a summary of each configuration in each environment; its processes are pooled.

    where: field -> value, to select some. Raises RequestError, a ValueError, without a store or such a result.
    """
    frame = select(load(store), dict(where or {}))
    return [_summary(rows) for _, rows in frame.groupby(["trial_id", "environment_id"], sort=False)]


def _summary(rows: pd.DataFrame) -> Summary:
    first = rows.iloc[0]
    known = [name for name in DISTINGUISHING_COLUMNS if name != "workload" and pd.notna(first.get(name))]
    measured = rows[(rows["status"] == Status.OK) & rows["median"].notna()]
    names = measured["phase"] + "." + measured["metric"]
    flags = {flag for words in rows["flags"].dropna().to_list() for flag in words}
    return Summary(
        name=f"{first['trial_id'][:8]} {first['device_name']}",
        config={name: label(first[name]) for name in known},
        metrics=dict(zip(names, measured["median"].astype(float), strict=True)),
        status=dict(zip(rows["workload"], rows["status"], strict=True)),
        flags=tuple(sorted(flags)),
    )
