"""A trial as `lmsweep trial` runs it, in this process: what it imports, it has already."""

from lmsweep.orchestrator.features.trial.watchdog import run_watched
from lmsweep.trials.results.record import Row
from lmsweep.trials.spec.config import Trial


def run_here(trial: Trial) -> list[Row]:
    """Return the rows of a trial; those of workloads after a failed one are missing."""
    rows: list[Row] = []
    run_watched(trial, rows.extend, lambda _seconds, _bytes: None)
    return rows
