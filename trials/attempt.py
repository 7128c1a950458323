"""An attempt: one execution of a trial, and the rows that it leaves."""

import uuid
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime

from trials.record import Fingerprint, Measurement, Record, environment_id
from trials.spec import Status, Trial, measurement_id, trial_id


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One execution of a trial: what its records have in common."""

    trial: Trial
    attempt_id: str
    started_at: datetime

    @classmethod
    def begin(cls, trial: Trial) -> "Attempt":
        return cls(trial=trial, attempt_id=uuid.uuid4().hex[:16], started_at=datetime.now(UTC))

    def records(self, workload: str, measurements: list[Measurement], fingerprint: Fingerprint) -> list[Record]:
        """The rows of a workload that ended ok."""
        row = self._row(workload, Status.OK, fingerprint)
        return [replace(row, **{f.name: getattr(m, f.name) for f in fields(Measurement)}) for m in measurements]

    def failure(self, workload: str, status: Status, error: str, fingerprint: Fingerprint) -> Record:
        """The row of a workload that did not."""
        return replace(self._row(workload, status, fingerprint), error=error)

    def _row(self, workload: str, status: Status, fingerprint: Fingerprint) -> Record:
        config = self.trial.config
        return Record(
            trial_id=trial_id(config),
            measurement_id=measurement_id(config, workload),
            environment_id=environment_id(fingerprint),
            attempt_id=self.attempt_id,
            sweep=self.trial.sweep,
            workload=workload,
            status=status,
            started_at=self.started_at,
            config=replace(config, device=config.device_type),
            fingerprint=fingerprint,
        )
