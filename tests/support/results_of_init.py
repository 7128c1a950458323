"""What `lmsweep init` and `lmsweep run` leave in examples/student, without the minutes that measuring takes."""

import shutil
from dataclasses import replace
from pathlib import Path

from lmsweep.orchestrator.features.init.discover import discover
from lmsweep.orchestrator.features.init.first_sweep import first_sweep
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.spec.config import Trial
from lmsweep.trials.spec.reference import is_reference
from tests.support.command import ROOT
from tests.support.made_up_results import LAPTOP, Attempts, samples

STATES = ("1" * 16, "2" * 16)
"""Digests of the student's code, before and after an edit."""


def student_after_init(folder: Path) -> Path:
    """A copy of the student's repository, with the sweep file that `init` writes there."""
    shutil.copytree(ROOT / "examples" / "student", folder, ignore=shutil.ignore_patterns("results", "__pycache__"))
    sweep = first_sweep("student", discover(code_folder(folder)), device="cpu", gpus=0, code=".")
    (folder / "lmsweep.yaml").write_text(sweep.text)
    return folder


def made_up_run(sweep: Path, store: Path) -> tuple[Trial, ...]:
    """Results of every trial of a sweep of the student's code in both states, as `run` would store them."""
    attempts, trials = Attempts(store), load_sweep(str(sweep)).trials
    for place, trial in enumerate(trials):
        for factor, digest in enumerate(STATES if trial.references else STATES[:1], start=1):
            state = replace(LAPTOP, code_digest=digest) if trial.references else LAPTOP
            for workload in trial.workloads:
                times = ("forward.time", "backward.time", "step.time") if workload == "attention" else ("step.time",)
                values: dict[str, tuple[float, ...] | None] = {
                    name: samples(factor * (0.1 + place), 0.01) for name in times
                }
                errors = ("error.output", "error.gradient") if is_reference(trial.config.attention) else ()
                values |= dict.fromkeys(errors, (1.5e-07,))
                units = dict.fromkeys(errors, "1")
                attempts.ok(trial.config, values, workload=workload, fingerprint=state, units=units, sweep=trial.sweep)
    return trials
