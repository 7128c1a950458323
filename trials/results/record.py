"""An attempt, and its rows: one Record per trial, workload, phase and metric, and rows of the detail tables."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.results.measurement import Artifact, Detail, Measurement, Yielded
from lmsweep.trials.results.outcome import Status, shortened
from lmsweep.trials.results.roles import unknown_fields
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.identity import measurement_id, trial_id


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row of the table `measurements`."""

    trial_id: str
    """Hash of the combination."""
    measurement_id: str
    """Hash of the combination, the workload and its protocol."""
    environment_id: str
    """Hash of the hardware and software."""
    attempt_id: str
    """Random per execution of a trial."""
    sweep: str
    """Name of the sweep, or `trial`."""
    workload: str
    """Its name, or the reference to the user's own."""
    status: str
    """A word of `Status`, the same for every row of one workload of one attempt."""
    flags: tuple[str, ...] = ()
    """Words of `Flag`."""
    error: str | None = None
    """What went wrong, its first line in a few words; None if the status is ok."""
    started_at: datetime
    """UTC."""
    config: TrialConfig
    """One column per field; no accelerator type in `device`, null for `auto` and an unknown vocabulary."""
    fingerprint: Fingerprint
    """One column per field."""
    phase: str | None = None
    """As in `Measurement`, like the following; None if the workload failed."""
    metric: str | None = None
    """What was measured: time, peak_allocated, energy, ..."""
    unit: str | None = None
    """Of the samples: s, B, J, W, ..."""
    samples: tuple[float, ...] | None = None
    """One number per measured iteration, in `unit`."""
    warmup_samples: tuple[float, ...] | None = None
    """One number per warm-up iteration, in `unit`."""
    reason: str | None = None
    """Why `samples` is null although the status is ok."""
    question: str | None = None
    """What the sweep asks, as JSON: `ask`, `compare`, `baseline`, `where`."""
    artifact: str | None = None
    """Path of a file that belongs to this row, relative to the store."""
    unknown: tuple[str, ...] = field(default=(), metadata={"part": "not stored"})
    """Fields of `config` that are stored as null (`lmsweep.trials.results.roles`)."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The measurement and the attempt that a detail row belongs to. The fields are those of `Record`."""

    trial_id: str
    measurement_id: str
    environment_id: str
    attempt_id: str
    sweep: str
    workload: str
    started_at: datetime
    config: TrialConfig
    fingerprint: Fingerprint
    unknown: tuple[str, ...] = field(default=(), metadata={"part": "not stored"})


@dataclass(frozen=True, kw_only=True)
class DetailRow:
    """One row of a detail table. The type of `detail` determines the table (`DETAIL_TABLES`)."""

    trial: Identity
    detail: Detail


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """An artifact on its way to the store."""

    path: str
    """Relative to the store."""
    content: bytes


Row = Record | DetailRow | StoredFile
"""What an attempt produces. The records of a workload come last: once they are stored, its result is complete."""


def records_of(rows: Sequence[Row]) -> list[Record]:
    return [row for row in rows if isinstance(row, Record)]


def failures_of(rows: Sequence[Row], error: str) -> list[Row]:
    """Return one failure for each workload among the rows of an attempt."""
    nothing: dict[str, Any] = dict.fromkeys((f.name for f in fields(Measurement)), None)
    failed = nothing | {"flags": (), "artifact": None, "status": Status.ERROR, "error": shortened(error)}
    last = {row.workload: row for row in records_of(rows)}
    return [replace(row, **failed) for row in last.values()]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    trial: Trial
    attempt_id: str
    started_at: datetime
    """UTC."""

    @classmethod
    def begin(cls, trial: Trial) -> "Attempt":
        return cls(trial=trial, attempt_id=uuid.uuid4().hex[:16], started_at=datetime.now(UTC))

    def rows(self, workload: str, found: Sequence[Yielded], fingerprint: Fingerprint) -> list[Row]:
        """Return the rows of a workload that succeeded: files and detail rows first, then its records."""
        row = self._row(workload, Status.OK, fingerprint)
        identity = Identity(**{f.name: getattr(row, f.name) for f in fields(Identity)})
        before: list[Row] = []
        records: list[Row] = []
        for item in found:
            if isinstance(item, Measurement):
                records.append(replace(row, **{f.name: getattr(item, f.name) for f in fields(Measurement)}))
            elif isinstance(item, Artifact):
                path = f"artifacts/{row.measurement_id}/{self.attempt_id}/{item.name}"
                before.append(StoredFile(path=path, content=item.content))
                size = (float(len(item.content)),)
                records.append(
                    replace(row, phase=item.phase, metric=item.metric, unit="B", samples=size, artifact=path)
                )
            else:
                before.append(DetailRow(trial=identity, detail=item))
        return before + records

    def failure(self, workload: str, status: Status, error: str, fingerprint: Fingerprint) -> Record:
        return replace(self._row(workload, status, fingerprint), error=shortened(error))

    def _row(self, workload: str, status: Status, fingerprint: Fingerprint) -> Record:
        config = self.trial.config
        return Record(
            trial_id=trial_id(config), measurement_id=measurement_id(config, workload),
            environment_id=environment_id(fingerprint, config.software), attempt_id=self.attempt_id,
            sweep=self.trial.sweep, question=self.trial.question, workload=workload, status=status,
            started_at=self.started_at, config=replace(config, device=config.device_type), fingerprint=fingerprint,
            unknown=unknown_fields(self.trial, workload),
        )  # fmt: skip
