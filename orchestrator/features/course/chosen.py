"""The results that belong to a problem: those of its trials, and of the same trials with the user's own code."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from lmsweep.analysis.data.results import Results
from lmsweep.orchestrator.running.progress.trial_words import describe
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.roles import MODEL, OF_STEP, PARTITION, arguments_for, varying_fields
from lmsweep.trials.spec.config import COMBINATION_FIELDS, CONFIG_FIELDS, Trial, TrialConfig
from lmsweep.trials.spec.identity import measurement_id
from lmsweep.trials.spec.reference import REFERENCES, is_reference
from lmsweep.trials.spec.workloads import workloads

_RANKS = {*PARTITION, "optimizer", *arguments_for("optimizer")}
"""Fields that may differ if the optimizer or the wrapper is the user's: either may shard, and so partition the job
differently."""
_IN_PLACE: dict[str, set[str]] = {
    **{name: {name, *arguments_for(name)} for name in REFERENCES},
    **{name: {name, *arguments_for(name), *MODEL} for name in ("model_code", "step")},
    **dict.fromkeys(("optimizer", "ddp"), _RANKS),
}
"""Column that may hold a reference -> the fields in which the result may then differ from a problem's trials."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """How many of the measurements that a problem's trials ask for are in a store."""

    asked: int
    ok: int
    failed: dict[str, int]
    """Status -> how many ended so and never succeeded."""
    lacking: tuple[str, ...]
    """The measurements that did not succeed: workload, trial and status of each with its reason, or missing."""

    @property
    def missing(self) -> int:
        return self.asked - self.ok - sum(self.failed.values())


class SomeResults(Results):
    """The pooled results and the detail rows that `keep` returns. `attempts` are those of the whole store: how much
    processes vary, which decides verdicts, is known from all of them."""

    def __init__(self, whole: Results, keep: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
        super().__init__(whole.store, whole.where, whole.prices, whole.flops)
        self._whole, self._keep = whole, keep
        self.everything = keep(whole.everything)  # in place of the property, so that the store is read once

    @cached_property
    def attempts(self) -> pd.DataFrame:
        return self._whole.attempts

    def newest(self, table: str) -> pd.DataFrame:
        rows = self._whole.newest(table)
        return rows if rows.empty else self._keep(rows)


def found_in(frame: pd.DataFrame, trials: Sequence[Trial]) -> Found:
    """Return how many of the measurements of these trials are among the rows of `lmsweep.load`, pooled or not."""
    names = varying_fields(trial.config for trial in trials)
    asked = {
        measurement_id(trial.config, workload): f"{workload}: {describe(trial.config, names) or 'the trial'}"
        for trial in trials
        for workload in trial.workloads
    }
    rows = frame[frame["measurement_id"].isin(asked)].sort_values("started_at", kind="stable")
    succeeded = set(rows["measurement_id"][rows["status"] == Status.OK])
    last_failures = rows[~rows["measurement_id"].isin(succeeded)].drop_duplicates("measurement_id", keep="last")
    statuses = dict(zip(last_failures["measurement_id"], map(str, last_failures["status"]), strict=True))
    unsupported = last_failures[last_failures["status"] == Status.UNSUPPORTED]
    reasons = {
        one: f" ({error})" for one, error in zip(unsupported["measurement_id"], unsupported["error"], strict=True)
    }
    return Found(
        asked=len(asked),
        ok=len(succeeded),
        failed=dict(Counter(statuses.values())),
        lacking=tuple(
            f"{words}: {statuses.get(one, 'missing')}{reasons.get(one, '')}"
            for one, words in asked.items()
            if one not in succeeded
        ),
    )


def rows_of_trials(frame: pd.DataFrame, trials: Sequence[Trial]) -> pd.DataFrame:
    """Return the rows of these trials, and those of trials that differ from one of them only by the user's code."""
    identifiers = {measurement_id(trial.config, name) for trial in trials for name in trial.workloads}
    belongs = frame["measurement_id"].isin(identifiers)
    has_reference = frame[list(REFERENCES)].map(is_reference).any(axis=1)
    of_users_code = frame[has_reference & ~belongs].drop_duplicates("measurement_id")
    more = [row["measurement_id"] for _, row in of_users_code.iterrows() if _matches_one(row, trials)]
    return frame[belongs | frame["measurement_id"].isin(more)]


def _matches_one(row: pd.Series, trials: Sequence[Trial]) -> bool:
    """Whether the row agrees with one of the trials in all fields but those that the user's code replaces."""
    workload = workloads().get(row["workload"])
    if workload is None:
        return False
    free = {name for column in REFERENCES if is_reference(row[column]) for name in _IN_PLACE[column]}
    names = [name for name in (*COMBINATION_FIELDS, *workload.protocol) if name not in free and name in row]
    stored = tuple(_plain(row[name]) for name in names)
    # In rows of the user's own model the fields of OF_STEP are null, but such a trial has their defaults.
    stored = tuple(
        CONFIG_FIELDS[name].default if value is None and name in OF_STEP else value
        for name, value in zip(names, stored, strict=True)
    )
    return any(workload.name in trial.workloads and _fields(trial.config, names) == stored for trial in trials)


def _fields(config: TrialConfig, names: Collection[str]) -> tuple[Any, ...]:
    return tuple(config.device_type if name == "device" else getattr(config, name) for name in names)


def _plain(value: Any) -> Any:
    if value is None or value is pd.NA or value != value:  # only NaN differs from itself
        return None
    return value.item() if hasattr(value, "item") else value
