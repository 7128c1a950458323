"""Each trial of a store as a configuration and numbers, as experiment trackers want it."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from lmsweep.analysis.data.columns import DISTINGUISHING_COLUMNS, NO_VALUE, label
from lmsweep.analysis.data.load import load
from lmsweep.analysis.data.selection import select
from lmsweep.analysis.tables.listing import HIGH, LOW
from lmsweep.analysis.tables.pivot import varying_keys
from lmsweep.trials.results.outcome import Status

_TRIAL, _NUMBERS = ["trial_id", "environment_id"], ["median", "low", "high"]


class Summary(NamedTuple):
    """One configuration in one environment."""

    name: str
    """The values in which it differs from the other summaries: `small, context_length 256, bf16`."""
    config: dict[str, str | int | float | bool]
    """Field -> value, of the configuration and of the hardware and software; fields without a value are left out."""
    metrics: dict[str, float]
    """`PHASE.METRIC` -> median in SI units (seconds, bytes, joules). `PHASE.METRIC_low` and `_high` are the ends of its
    95 % interval, where they are known. Empty if the trial failed."""
    status: dict[str, str]
    """Workload -> status."""
    flags: tuple[str, ...]
    """Reasons to doubt a number."""
    sweep: str
    """The name of the sweep that measured it."""


def summaries(store: str, where: Mapping[str, str] | None = None) -> list[Summary]:
    """Return a summary of each configuration in each environment; its processes are pooled.

    where: field -> value, to select some. Raises RequestError, a ValueError, without a store or such a result.
    """
    return summaries_of(select(load(store), dict(where or {})))


def summaries_of(frame: pd.DataFrame) -> list[Summary]:
    """Return the summaries of these rows of `load`, which are pooled."""
    groups = frame.groupby(_TRIAL, sort=False)
    firsts = groups.head(1)
    differing = [name for name in varying_keys(firsts, rows=[], cols=[]) if name != "workload"]
    names = firsts[differing].apply(_name, axis=1) if differing else firsts["model"].map(label)
    # Trials may differ only in fields that `varying_keys` leaves out.
    names = names.where(~names.duplicated(keep=False), names + " " + firsts["trial_id"].str[:8])
    # Names and groups are both in the order of first appearance.
    return [_summary(rows, name) for name, (_, rows) in zip(names, groups, strict=True)]


def _name(row: pd.Series) -> str:
    texts = {name: label(value) for name, value in row.items() if label(value) != NO_VALUE}
    plain = ("model", "precision", "attention", "optimizer", "device_name")
    return ", ".join(text if name in plain else f"{name} {text}" for name, text in texts.items())


def _summary(rows: pd.DataFrame, name: str) -> Summary:
    first = rows.iloc[0]
    fields = [field for field in DISTINGUISHING_COLUMNS if field != "workload" and pd.notna(first.get(field))]
    measured = rows[(rows["status"] == Status.OK) & rows["median"].notna()]
    metrics: dict[str, float] = {}
    for value, numbers in zip(measured["phase"] + "." + measured["metric"], measured[_NUMBERS].to_numpy(), strict=True):
        by_ending = zip(("", LOW, HIGH), numbers, strict=True)
        metrics |= {f"{value}{ending}": float(one) for ending, one in by_ending if not np.isnan(one)}
    return Summary(
        name=name,
        config={field: _plain(first[field]) for field in fields},
        metrics=metrics,
        status=dict(zip(rows["workload"], rows["status"], strict=True)),
        flags=tuple(sorted({flag for words in rows["flags"].dropna().to_list() for flag in words})),
        sweep=first["sweep"],
    )


def _plain(value: object) -> str | int | float | bool:
    """The value as trackers sort and draw it: a number stays one, without NumPy's type."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if isinstance(plain, bool | int | float) else label(value)
