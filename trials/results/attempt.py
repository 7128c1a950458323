"""An attempt: one execution of a trial, which turns what its workloads yield into rows."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime

from lmsweep.trials.results.environment import Fingerprint, environment_id
from lmsweep.trials.results.measurement import Artifact, Measurement, Yielded
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import DetailRow, Identity, Record, Row, StoredFile
from lmsweep.trials.results.roles import unknown_fields
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.identity import measurement_id, trial_id


@dataclass(frozen=True, kw_only=True)
class Attempt:
    trial: Trial
    attempt_id: str
    """Random."""
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
        text = error.encode(errors="backslashreplace").decode()  # what the user's code says may hold half a character
        return replace(self._row(workload, status, fingerprint), error=text)

    def _row(self, workload: str, status: Status, fingerprint: Fingerprint) -> Record:
        config = self.trial.config
        return Record(
            trial_id=trial_id(config),
            measurement_id=measurement_id(config, workload),
            environment_id=environment_id(fingerprint, config.software),
            attempt_id=self.attempt_id,
            sweep=self.trial.sweep,
            question=self.trial.question,
            workload=workload,
            status=status,
            started_at=self.started_at,
            config=replace(config, device=config.device_type),
            fingerprint=fingerprint,
            unknown=unknown_fields(self.trial, workload),
        )
