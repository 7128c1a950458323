"""What is stored: one Record per trial, workload, phase and metric, and the rows of the tables beside."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.measurement import Detail
from lmsweep.trials.spec.config import TrialConfig


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row of the table `measurements`."""

    trial_id: str
    measurement_id: str
    environment_id: str
    attempt_id: str
    """Drawn anew for every execution of a trial, so that two results of one measurement can be told apart."""
    sweep: str
    """Name of the sweep that asked for it."""
    workload: str
    status: str
    """One word of `Status`; the same for every row of one workload of one attempt."""
    flags: tuple[str, ...] = ()
    """Words of `Flag`."""
    error: str | None = None
    """What went wrong, where status is not ok."""
    started_at: datetime
    """When the trial's process began, UTC."""
    config: TrialConfig
    """Flattened into one column per field; `device` without its placement; of AUTO_FIELDS, null is `auto`."""
    fingerprint: Fingerprint
    """Flattened into one column per field."""
    phase: str | None = None
    metric: str | None = None
    """None where the workload failed."""
    unit: str | None = None
    samples: tuple[float, ...] | None = None
    warmup_samples: tuple[float, ...] | None = None
    reason: str | None = None
    """Why `samples` is null although the status is ok."""
    artifact: str | None = None
    """Path of a file that belongs to this row, relative to the store."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which measurement and which attempt at it a row belongs to, in the tables beside `measurements`."""

    trial_id: str
    measurement_id: str
    environment_id: str
    attempt_id: str
    sweep: str
    workload: str
    started_at: datetime
    config: TrialConfig
    fingerprint: Fingerprint


@dataclass(frozen=True, kw_only=True)
class DetailRow:
    """One row of a table beside `measurements`: of which one, the type of its detail says (`DETAIL_TABLES`)."""

    trial: Identity
    detail: Detail


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """An artifact on its way to the store."""

    path: str
    """Relative to the store; the row that it belongs to names it."""
    content: bytes


Row = Record | DetailRow | StoredFile
"""What an attempt leaves, for each workload its records last: with them its result is complete."""


def records_of(rows: Sequence[Row]) -> list[Record]:
    """The records among what an attempt leaves."""
    return [row for row in rows if isinstance(row, Record)]
