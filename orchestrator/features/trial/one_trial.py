"""Which trial is meant, its software, whether it fits here, and its line of progress."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lmsweep.orchestrator.planning.memory_predictions import SMALL, Predictions
from lmsweep.orchestrator.software import SoftwareError, interpreter_with
from lmsweep.orchestrator.sweep.sweep import Sweep
from lmsweep.orchestrator.terminal import format_seconds, say
from lmsweep.trials.machine.interpreter import MADE_BY_US, command, environment
from lmsweep.trials.results.environment import Fingerprint, expected_with
from lmsweep.trials.results.record import Attempt, Record, Row
from lmsweep.trials.spec.config import RequestError, Trial
from lmsweep.trials.spec.identity import trial_id
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.rules.combination_rules import why_not


def planned_trial(sweep: Sweep, text: str) -> Trial:
    """Return the trial whose `trial_id` begins with this text. Raises RequestError if none does, or several do."""
    alike = [trial for trial in sweep.trials if text and trial_id(trial.config).startswith(text.lower())]
    if not alike:
        raise RequestError(
            f"--id {text}: no trial of {sweep.name} has this identifier; `lmsweep plan --all` shows them"
        )
    if len(alike) > 1:
        ids = dict.fromkeys(trial_id(trial.config) for trial in alike)
        what = f"begins the identifiers {', '.join(ids)}" if len(ids) > 1 else "is the identifier of several trials"
        raise RequestError(f"--id {text}: {what} of {sweep.name}; write one in full, or choose with --set FIELD=VALUE")
    return alike[0]


def _is_inside(software: str) -> bool:
    """Return whether this process runs in the environment."""
    try:
        return Path(sys.prefix, MADE_BY_US).read_text() == software
    except OSError:
        return False


def continue_with(software: str | None) -> None:
    """Replace this process by the same command in the software's environment. Raises SoftwareError."""
    if software is None or _is_inside(software):
        return
    python = interpreter_with(software, lambda words: say(words, error=True))
    words = command("lmsweep.orchestrator.cli", *sys.argv[1:], python=python)
    sys.stdout.flush()
    os.execve(python, words, environment())


def check_possible(trial: Trial) -> None:
    """Raise RequestError if no machine runs any of its workloads."""
    reasons = [why_not(trial.config, workload) for workload in trial.workloads]
    if all(reasons):
        raise RequestError(f"trial: {reasons[0]}")


def wrong_in(records: Sequence[Record]) -> str | None:
    """Return what the trial found wrong with its configuration, such as a target that no layer has; None if nothing."""
    last = [record.error.strip().rpartition("\n")[2] for record in records if record.error]
    raised = f"{RequestError.__module__}.{RequestError.__name__}: "
    return next((line.removeprefix(raised) for line in last if line.startswith(raised)), None)


def check_fit(trial: Trial) -> None:
    """Raise RequestError if the trial's predicted memory exceeds what this machine has for it."""
    from lmsweep.trials.bench.fingerprint import fingerprint, present_devices

    if trial.config.device_type not in present_devices():
        return  # running it reports that
    predictions = Predictions([trial], least=SMALL)
    if predictions.asked:
        say("predicting its memory; --no-predict skips it", error=True)
    environment = fingerprint(trial.config.device_type)
    predictions.settle([(trial, environment)])
    if reason := predictions.why_too_large(trial, environment):
        raise RequestError(f"trial: {reason}; --no-predict runs it anyway")


def fingerprint_here(trial: Trial) -> Fingerprint:
    """Return the environment of the trial's device, or of the CPU if the device is absent."""
    from lmsweep.trials.bench.fingerprint import fingerprint, present_devices

    device = trial.config.device_type
    return fingerprint(device if device in present_devices() else "cpu")


def unmade_rows(trial: Trial, error: SoftwareError) -> list[Row]:
    """Return the rows of a trial whose environment cannot be made."""
    attempt, expected = Attempt.begin(trial), expected_with(fingerprint_here(trial), trial.config.software)
    return [attempt.failure(name, error.status, str(error), expected) for name in trial.workloads]


def running_words(trial: Trial, seconds: float, held: int) -> str:
    """Return `timing: 3.0 s of at most 15 min 00 s, 2 GiB of memory`."""
    most = format_seconds(trial.config.timeout_seconds)
    return f"{', '.join(trial.workloads)}: {format_seconds(seconds)} of at most {most}, {gib(held)} of memory"
