"""Writes a plan, or the largest sizes that fit, as text and as JSON."""

from collections import Counter
from dataclasses import asdict
from itertools import islice

import pandas as pd
from tabulate import tabulate

from lmsweep.analysis.data.columns import label
from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.orchestrator.api import software_of
from lmsweep.orchestrator.cluster.refusal import Refusal
from lmsweep.orchestrator.commands.text.show_table import show_parts, show_table
from lmsweep.orchestrator.planning.largest_fit import Frontier
from lmsweep.orchestrator.planning.memory_budget import between
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan import Plan, PlannedTrial
from lmsweep.orchestrator.planning.plan_estimate import PlanEstimate
from lmsweep.orchestrator.planning.rank_estimate import NotEstimated, RankEstimate, RankEstimates
from lmsweep.orchestrator.running.progress.trial_words import SHORT_ID, plan_summary
from lmsweep.orchestrator.terminal import format_seconds, on_terminal, say, say_data
from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.isolation.virtual_environment import is_made
from lmsweep.trials.results.roles import varying_fields
from lmsweep.trials.spec.quantities import gib
from lmsweep.trials.spec.reference import REFERENCES, short_names

MOST_ROWS = 60
"""Most trials in the table; --all and --format json list all."""

TONES: dict[str, Tone] = {"stored": "neutral", "predicted_oom": "unclear", "unsupported": "unclear"}

MOST_REASONS = 3
"""Most reasons given for unknown values; --format json has all."""

NOT_ASKED = Refusal("--no-predict")
"""Why a plan made without predictions has none."""

NO_PRICE = "--price was not given"

NO_SECONDS = {"stored": "it is already measured", "predicted_oom": "it will not run", "unsupported": "it will not run"}
"""Why a trial with this action takes no time."""


def as_json(
    plan: Plan, estimate: PlanEstimate, predictions: Predictions | None = None, steps: RankEstimates | None = None
) -> dict[str, object]:
    """Return the plan as JSON: one entry per trial, and time and dollars in total. Beside each null is its reason."""
    return {
        "sweep": plan.sweep,
        "trials": [
            {
                "trial_id": planned.trial_id,
                "config": asdict(planned.trial.config),
                "workloads": list(planned.trial.workloads),
                "action": planned.action,
                "reason": planned.reason,
                "process": planned.process if planned.action == "run" else None,
                "device_name": planned.environment.device_name,
                **_predicted(planned, estimate, predictions),
                **_step(planned, steps),
            }
            for planned in plan.trials
        ],
        "counts": dict(Counter(planned.action for planned in plan.trials)),
        "expected_seconds": None if estimate.reason else estimate.seconds,
        "expected_seconds_between": None if estimate.reason else estimate.between,
        "expected_seconds_reason": estimate.reason,
        "expected_dollars": None if estimate.unpriced or estimate.reason else estimate.dollars,
        "expected_dollars_reason": _no_dollars_reason(estimate),
    }


def _predicted(planned: PlannedTrial, estimate: PlanEstimate, predictions: Predictions | None) -> dict[str, object]:
    found = _prediction(planned, predictions)
    reason = NO_SECONDS.get(planned.action) or estimate.trials[planned.index].reason
    return {
        "predicted_peak_bytes": found.peak if isinstance(found, Prediction) else None,
        "predicted_peak_reason": _no_peak(found),
        "expected_seconds": None if reason else estimate.trials[planned.index].seconds,
        "expected_seconds_reason": reason,
    }


def _step(planned: PlannedTrial, steps: RankEstimates | None) -> dict[str, object]:
    """Return the estimated step of several ranks; nothing for other trials."""
    found = steps.of(planned) if steps else None
    if found is None:
        return {}
    known = found if isinstance(found, RankEstimate) else None
    return {
        "expected_step_seconds": known and known.seconds,
        "expected_step_seconds_between": known and known.between,
        "expected_exposed_seconds": known and known.exposed,
        "expected_step_source": known and known.source,
        "expected_step_reason": found.reason if isinstance(found, NotEstimated) else None,
    }


def _no_peak(found: Prediction | Bounds | Refusal) -> str | None:
    """Return why there is no predicted peak; None if there is one."""
    if isinstance(found, Bounds):
        return f"{between(found)}, from predictions of smaller and larger trials; a plan this large predicts only some"
    return found.reason if isinstance(found, Refusal) else None


def _no_dollars_reason(estimate: PlanEstimate) -> str | None:
    if estimate.reason:
        return estimate.reason
    if estimate.dollars is None:
        return NO_PRICE
    return f"no price for {', '.join(estimate.unpriced)}" if estimate.unpriced else None


def as_text(
    plan: Plan,
    estimate: PlanEstimate,
    predictions: Predictions | None = None,
    steps: RankEstimates | None = None,
    *,
    all: bool = False,
) -> str:
    """Return the summary, a table of the trials, and the reasons for unknown values."""
    frame = _trials(plan, estimate, predictions, steps, all=all)
    table = tabulate(frame.to_numpy(), headers=[*map(str, frame)], disable_numparse=True)
    parts = [plan_summary(plan, estimate), table]
    parts += _cut(plan, all=all), _unknown(plan, estimate, predictions), _steps_from(plan, steps), _software(plan)
    return "\n\n".join(part for part in parts if part)


def as_listing(
    plan: Plan,
    estimate: PlanEstimate,
    predictions: Predictions | None = None,
    steps: RankEstimates | None = None,
    *,
    all: bool = False,
) -> Listing:
    """Return the same for a terminal."""
    frame = _trials(plan, estimate, predictions, steps, all=all)
    frame.insert(len(frame.columns) - 1, "trial", frame.pop("trial").str[:SHORT_ID])
    notes = [_cut(plan, all=all), *_unknown(plan, estimate, predictions).split("\n")]
    notes += [*_steps_from(plan, steps).split("\n"), _software(plan)]
    return Listing(
        title=plan_summary(plan, estimate),
        frame=frame,
        keys=[str(name) for name in frame if name not in ("peak memory", "step", "time", "trial", "action")],
        units={},
        tones=TONES,
        notes=[note for note in notes if note],
    )


def say_plan(
    plan: Plan,
    estimate: PlanEstimate,
    predictions: Predictions | None = None,
    steps: RankEstimates | None = None,
    *,
    all: bool = False,
) -> None:
    """Print the plan; on a terminal, fitted to its width."""
    if not plan.trials:
        say(f"{plan.sweep}: no trials; this shard is empty")
    elif on_terminal():
        show_table(as_listing(plan, estimate, predictions, steps, all=all))
    else:
        say_data(as_text(plan, estimate, predictions, steps, all=all))


def _software(plan: Plan) -> str:
    """Return a sentence about the environments of the trials that will run; empty if they need none."""
    wanted = software_of(plan)
    if not wanted:
        return ""
    missing = [software for software in wanted if not is_made(software)]
    found = f"a run installs {', '.join(missing)} first" if missing else "their environments are ready"
    return f"software: {found}; peak memory is predicted with the installed torch"


def _trials(
    plan: Plan, estimate: PlanEstimate, predictions: Predictions | None, steps: RankEstimates | None, *, all: bool
) -> pd.DataFrame:
    """Return one row of texts per trial."""
    stepping = ["step"] if steps and any(isinstance(steps.of(one), RankEstimate) for one in plan.trials) else []
    names = varying_fields([planned.trial.config for planned in plan.trials])
    repeated = ["process"] if any(planned.trial.config.processes > 1 for planned in plan.trials) else []
    short = {name: short_names(getattr(one.trial.config, name) for one in plan.trials) for name in REFERENCES}
    rows = [
        [
            planned.trial_id,
            *(short.get(name, {}).get(value := getattr(planned.trial.config, name), label(value)) for name in names),
            *(_process_text(planned) for _ in repeated),
            _peak_text(planned, predictions),
            *(_step_text(planned, steps) for _ in stepping),
            _seconds_text(planned, estimate),
            planned.action,
        ]
        for planned in (plan.trials if all else plan.trials[:MOST_ROWS])
    ]
    return pd.DataFrame(
        rows, columns=["trial", *names, *repeated, "peak memory", *stepping, "time", "action"], dtype=object
    )


def _step_text(planned: PlannedTrial, steps: RankEstimates | None) -> str:
    found = steps.of(planned) if steps else None
    if isinstance(found, RankEstimate):
        low, high = (f"{seconds * 1e3:.3g}" for seconds in found.between)
        return f"{found.seconds * 1e3:.3g} ms ({low} to {high})"
    return "?" if found else "-"


def _steps_from(plan: Plan, steps: RankEstimates | None) -> str:
    """Return what the estimated steps rest on, and why others are unknown."""
    found = [steps.of(planned) for planned in plan.trials] if steps else []
    sources = dict.fromkeys(f"step: {one.source}" for one in found if isinstance(one, RankEstimate))
    reasons = dict.fromkeys(f"step ?: {one.reason}" for one in found if isinstance(one, NotEstimated))
    return "\n".join([*islice(sources, MOST_REASONS), *islice(reasons, MOST_REASONS)])


def _cut(plan: Plan, *, all: bool) -> str:
    left = 0 if all else len(plan.trials) - MOST_ROWS
    return f"... and {left} more; --all lists them, --format json tells more" if left > 0 else ""


def _process_text(planned: PlannedTrial) -> str:
    if planned.action == "run":
        return f"{planned.process} of {planned.trial.config.processes}"
    return str(planned.trial.config.processes) if planned.action == "stored" else "-"


def _unknown(plan: Plan, estimate: PlanEstimate, predictions: Predictions | None) -> str:
    """Return why there are question marks in the table."""
    found = (_prediction(planned, predictions) for planned in plan.trials)
    peaks = dict.fromkeys(f"peak memory ?: {one.reason}" for one in found if isinstance(one, Refusal))
    reasons = (one.reason for one in estimate.trials.values())
    times = dict.fromkeys(f"time ?: {reason}" for reason in reasons if reason)
    return "\n".join([*islice(peaks, MOST_REASONS), *islice(times, MOST_REASONS)])


def _prediction(planned: PlannedTrial, predictions: Predictions | None) -> Prediction | Bounds | Refusal:
    return predictions.of(planned.trial, planned.environment.device_name) if predictions else NOT_ASKED


def frontier_as_json(found: list[Frontier]) -> list[dict[str, object]]:
    """Return one JSON entry per configuration."""
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


def say_frontier(found: list[list[Frontier]]) -> None:
    """Print a table of the largest value that fits for each dimension, by everything else that varies."""
    show_parts([_frontier_listing(each) for each in found])


def _frontier_listing(found: list[Frontier]) -> Listing:
    dimension = found[0].dimension
    names = [name for name in varying_fields([one.config for one in found]) if name != dimension]
    rows = [[*(getattr(one.config, name) for name in names), one.device_name, _largest_text(one)] for one in found]
    rooms = dict.fromkeys(one.budget.words for one in found)
    return Listing(
        title=f"The largest {dimension} that fits, as predicted",
        frame=pd.DataFrame(rows, columns=[*names, "device", f"largest {dimension}"], dtype=object),
        keys=[*names, "device"],
        units={},
        notes=[f"fits: predicted peak of at most {room}" for room in rooms],
    )


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


def _seconds_text(planned: PlannedTrial, estimate: PlanEstimate) -> str:
    found = estimate.trials.get(planned.index)
    if found is None:
        return "-"
    return "?" if found.reason else format_seconds(found.seconds)
