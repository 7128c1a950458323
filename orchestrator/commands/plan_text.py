"""A plan as people read it, and as programs do."""

from collections import Counter
from dataclasses import asdict
from itertools import islice
from typing import Any

from tabulate import tabulate

from lmsweep.orchestrator.planning.forecast import Forecast
from lmsweep.orchestrator.planning.largest_fit import Frontier
from lmsweep.orchestrator.planning.memory_budget import between
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan import Plan, PlannedTrial
from lmsweep.orchestrator.running.progress import varying_fields
from lmsweep.orchestrator.terminal import format_seconds
from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.spec.quantities import gib

MOST_ROWS = 60
"""A longer plan is summed up; --format json has every trial."""

MOST_REASONS = 3
"""Of what is unknown for more reasons, --format json has each."""

MOST_SKIPPED = 40
"""Lines on what will not run, and why."""

NOT_ASKED = "--no-predict"
"""Why a plan made without predictions has none."""

NO_PRICE = "--price was not given"

NO_SECONDS = {"stored": "it is measured already", "predicted_oom": "it will not run", "unsupported": "it will not run"}
"""Why a trial with this action takes no time."""


def as_json(plan: Plan, foreseen: Forecast, predictions: Predictions | None = None) -> dict[str, Any]:
    """One entry per trial, in the order of the plan, and the time and dollars of all. What is null has its reason
    beside it.
    """
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
                **_foreseen(planned, foreseen, predictions),
            }
            for planned in plan.trials
        ],
        "counts": dict(Counter(planned.action for planned in plan.trials)),
        "expected_seconds": foreseen.seconds,
        "expected_seconds_between": foreseen.between,
        "expected_seconds_reason": foreseen.reason,
        "expected_dollars": None if foreseen.unpriced else foreseen.dollars,
        "expected_dollars_reason": _no_dollars_reason(foreseen),
    }


def _foreseen(planned: PlannedTrial, foreseen: Forecast, predictions: Predictions | None) -> dict[str, Any]:
    found = _prediction(planned, predictions)
    reason = NO_SECONDS.get(planned.action) or foreseen.estimates[id(planned)].reason
    return {
        "predicted_peak_bytes": found.peak if isinstance(found, Prediction) else None,
        "predicted_peak_reason": _no_peak(found),
        "expected_seconds": None if reason else foreseen.estimates[id(planned)].seconds,
        "expected_seconds_reason": reason,
    }


def _no_peak(found: Prediction | Bounds | str) -> str | None:
    """Why there is no predicted peak."""
    if isinstance(found, Bounds):
        return f"{between(found)}, by those predicted of smaller and larger trials: of so many not each is predicted"
    return found if isinstance(found, str) else None


def _no_dollars_reason(foreseen: Forecast) -> str | None:
    if foreseen.reason:
        return foreseen.reason
    if foreseen.dollars is None:
        return NO_PRICE
    return f"no price for {', '.join(foreseen.unpriced)}" if foreseen.unpriced else None


def as_text(plan: Plan, foreseen: Forecast, predictions: Predictions | None = None) -> str:
    """What will run, what will not and why."""
    names = varying_fields(planned.trial.config for planned in plan.trials)
    rows = [
        [
            planned.trial_id,
            *(getattr(planned.trial.config, name) for name in names),
            _peak_text(planned, predictions),
            _seconds_text(planned, foreseen),
            planned.action,
        ]
        for planned in plan.trials[:MOST_ROWS]
    ]
    parts = [tabulate(rows, headers=["trial", *names, "peak memory", "time", "action"], disable_numparse=True)]
    if len(plan.trials) > MOST_ROWS:
        parts.append(f"... and {len(plan.trials) - MOST_ROWS} more; --format json lists all")
    parts += [_unknown(plan, foreseen, predictions), summary(plan, foreseen)]
    return "\n\n".join(part for part in parts if part)


def _unknown(plan: Plan, foreseen: Forecast, predictions: Predictions | None) -> str:
    """Why there are question marks in the table."""
    found = (_prediction(planned, predictions) for planned in plan.trials)
    peaks = dict.fromkeys(f"peak memory ?: {reason}" for reason in found if isinstance(reason, str))
    reasons = (estimate.reason for estimate in foreseen.estimates.values())
    times = dict.fromkeys(f"time ?: {reason}" for reason in reasons if reason)
    return "\n".join([*islice(peaks, MOST_REASONS), *islice(times, MOST_REASONS)])


def _prediction(planned: PlannedTrial, predictions: Predictions | None) -> Prediction | Bounds | str:
    return predictions.of(planned.trial, planned.environment.device_name) if predictions else NOT_ASKED


def summary(plan: Plan, foreseen: Forecast) -> str:
    """How many trials of each kind, how long they will take, and the reasons of those that will not run."""
    lines = [f"{plan.sweep}: {_trials(len(plan.trials))}, {plan.count('run')} to run{_in_all(foreseen)}"]
    skipped = Counter((planned.action, planned.reason) for planned in plan.trials if planned.action != "run")
    told = skipped.most_common(MOST_SKIPPED)
    lines += [f"  {count} {action}: {reason}" for (action, reason), count in told]
    if rest := skipped.total() - sum(count for _, count in told):
        lines.append(f"  {rest} more for other reasons; plan --format json has each")
    return "\n".join(lines)


def _in_all(foreseen: Forecast) -> str:
    if not foreseen.estimates or foreseen.seconds is None:
        return ""
    between = f" ({' to '.join(map(format_seconds, foreseen.between))})" if foreseen.between else ""
    return f", in about {format_seconds(foreseen.seconds)}{between}{_dollars_text(foreseen)}"


def _dollars_text(foreseen: Forecast) -> str:
    if foreseen.dollars is None:
        return ""
    if reason := _no_dollars_reason(foreseen):
        return f", at least {foreseen.dollars:.2f} dollars ({reason})"
    return f", {foreseen.dollars:.2f} dollars"


def frontier_as_json(found: list[Frontier]) -> list[dict[str, Any]]:
    """One entry per configuration."""
    return [
        {
            "config": asdict(one.config),
            "dimension": one.dimension,
            "largest": one.largest,
            "possible": one.possible,
            "reason": one.reason,
            "device_name": one.device_name,
            "budget_bytes": one.budget.bytes,
        }
        for one in found
    ]


def frontier_as_text(found: list[Frontier]) -> str:
    """The largest value that fits, by everything else that varies."""
    dimension = found[0].dimension
    names = [name for name in varying_fields(one.config for one in found) if name != dimension]
    rows = [[*(getattr(one.config, name) for name in names), one.device_name, _largest_text(one)] for one in found]
    table = tabulate(rows, headers=[*names, "on", f"largest {dimension}"], disable_numparse=True)
    rooms = dict.fromkeys(one.budget.words for one in found)
    return "\n\n".join([table, "\n".join(f"predicted peaks of at most {room}" for room in rooms)])


def _largest_text(one: Frontier) -> str:
    if one.largest is None:
        return f"? ({one.reason})"
    if one.possible != one.largest:
        return f"{one.largest} to {one.possible}"
    return str(one.largest) if one.largest else "none fits"


def _peak_text(planned: PlannedTrial, predictions: Predictions | None) -> str:
    found = _prediction(planned, predictions)
    if isinstance(found, Bounds):
        return between(found)
    return gib(found.peak) if isinstance(found, Prediction) else "?"


def _seconds_text(planned: PlannedTrial, foreseen: Forecast) -> str:
    estimate = foreseen.estimates.get(id(planned))
    if estimate is None:
        return "-"
    return "?" if estimate.reason else format_seconds(estimate.seconds)


def _trials(count: int) -> str:
    return f"{count} trial" if count == 1 else f"{count} trials"
