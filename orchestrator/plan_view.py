"""A plan as people read it, and as programs do."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from orchestrator.plan import Plan
from orchestrator.progress import varying_fields

MOST_ROWS = 60
"""A longer plan is summed up; --format json has every trial."""


def as_json(plan: Plan) -> dict[str, Any]:
    """One entry per trial, in the order in which they would run."""
    return {
        "sweep": plan.sweep,
        "trials": [
            {
                "trial_id": planned.trial_id,
                "config": asdict(planned.trial.config),
                "workloads": list(planned.trial.workloads),
                "action": planned.action,
                "reason": planned.reason,
                "device_name": planned.environment.device_name,
            }
            for planned in plan.trials
        ],
        "counts": dict(Counter(planned.action for planned in plan.trials)),
    }


def as_text(plan: Plan) -> str:
    """What will run, what will not and why."""
    names = varying_fields(planned.trial.config for planned in plan.trials)
    rows = [
        [planned.trial_id, *(getattr(planned.trial.config, name) for name in names), planned.action]
        for planned in plan.trials[:MOST_ROWS]
    ]
    parts = [tabulate(rows, headers=["trial", *names, "action"], disable_numparse=True)]
    if len(plan.trials) > MOST_ROWS:
        parts.append(f"... and {len(plan.trials) - MOST_ROWS} more; --format json lists all")
    parts.append(summary(plan))
    return "\n\n".join(parts)


def summary(plan: Plan) -> str:
    """How many trials of each kind, with the reasons of those that will not run."""
    lines = [f"{plan.sweep}: {_trials(len(plan.trials))}, {plan.count('run')} to run"]
    skipped = Counter((planned.action, planned.reason) for planned in plan.trials if planned.action != "run")
    for (action, reason), count in skipped.most_common():
        lines.append(f"  {count} {action}: {reason}")
    return "\n".join(lines)


def _trials(count: int) -> str:
    return f"{count} trial" if count == 1 else f"{count} trials"
