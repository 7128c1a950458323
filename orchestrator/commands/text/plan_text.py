"""Writes a plan, or the largest sizes that fit, as text and as JSON."""

from collections import Counter
from dataclasses import asdict, dataclass
from itertools import islice

import pandas as pd

from lmsweep.analysis.data.columns import label
from lmsweep.analysis.tables.listing import Listing, Tone
from lmsweep.orchestrator.api import software_of
from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.commands.text.show_table import show_parts, show_table
from lmsweep.orchestrator.planning.largest_fit import Frontier
from lmsweep.orchestrator.planning.memory_budget import between
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan import Plan, PlannedTrial
from lmsweep.orchestrator.planning.plan_estimate import PlanEstimate
from lmsweep.orchestrator.planning.step_estimate import Fleet, StepEstimate, StepEstimates
from lmsweep.orchestrator.running.progress.trial_words import SHORT_ID, plan_summary, short_values
from lmsweep.orchestrator.terminal import format_seconds, on_terminal, say
from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.isolation.virtual_environment import is_made
from lmsweep.trials.results.roles import Role, fields_with, varying_fields
from lmsweep.trials.spec.quantities import gib

MOST_ROWS = 60
"""Most trials in the table; --all and --format json list all."""
MOST_REASONS = 3
"""Most reasons given for unknown values; --format json has all."""
TONES: dict[str, Tone] = {"stored": "neutral", "predicted_oom": "unclear", "unsupported": "unclear"}
NO_SECONDS = {"stored": "it is already measured", "predicted_oom": "it will not run", "unsupported": "it will not run"}
"""Why a trial with this action takes no time."""


def _of_fleet(step: StepEstimate, fleet: Fleet) -> dict[str, object]:
    """Return what only a step of ranks states."""
    return {
        "expected_exposed_parts": dict(step.parts),
        "expected_tokens_per_second": fleet.tokens_per_second,
        "expected_dollars_per_billion_tokens": fleet.dollars,
        "worth_up_to_gpus": fleet.worth,
    }


@dataclass(frozen=True)
class PlanText:
    """A plan, and what is expected of its trials."""

    plan: Plan
    estimate: PlanEstimate
    predictions: Predictions | None = None
    steps: StepEstimates | None = None

    def as_json(self) -> dict[str, object]:
        """Return one entry per trial, and time and dollars in total. Beside each null is its reason."""
        estimate = self.estimate
        no_dollars = f"no price for {', '.join(estimate.unpriced)}" if estimate.unpriced else None
        no_dollars = "--price was not given" if estimate.dollars is None else no_dollars
        return {
            "sweep": self.plan.sweep,
            "trials": [self._trial_as_json(planned) for planned in self.plan.trials],
            "counts": dict(Counter(planned.action for planned in self.plan.trials)),
            "expected_seconds": None if estimate.reason else estimate.seconds,
            "expected_seconds_between": None if estimate.reason else estimate.between,
            "expected_seconds_reason": estimate.reason,
            "expected_dollars": None if estimate.unpriced or estimate.reason else estimate.dollars,
            "expected_dollars_reason": estimate.reason or no_dollars,
        }

    def _trial_as_json(self, planned: PlannedTrial) -> dict[str, object]:
        peak, step = self._peak(planned), self.steps.of(planned) if self.steps else None
        no_peak = peak.reason if isinstance(peak, Refusal) else None
        if isinstance(peak, Bounds):
            no_peak = f"{between(peak)}, {peak.source}"
        no_seconds = NO_SECONDS.get(planned.action) or self.estimate.trials[planned.index].reason
        found: dict[str, object] = {
            "trial_id": planned.trial_id,
            "config": asdict(planned.trial.config),
            "workloads": list(planned.trial.workloads),
            "action": planned.action,
            "reason": planned.reason,
            "process": planned.process if planned.action == "run" else None,
            "device_name": planned.environment.device_name,
            "predicted_peak_bytes": peak.peak if isinstance(peak, Prediction) else None,
            "predicted_peak_reason": no_peak,
            "expected_seconds": None if no_seconds else self.estimate.trials[planned.index].seconds,
            "expected_seconds_reason": no_seconds,
        }
        if step is None:  # its workloads measure none, or it is not on a GPU
            return found
        known = None if isinstance(step, Refusal) else step
        return (
            found
            | {
                "expected_step_seconds": known and known.seconds,
                "expected_step_seconds_between": known and known.between,
                "expected_exposed_seconds": known and known.exposed,
                "expected_step_source": known and known.source,
                "expected_step_reason": step.reason if isinstance(step, Refusal) else None,
            }
            | (_of_fleet(known, known.fleet) if known and known.fleet else {})
        )

    def say(self, *, all: bool = False) -> None:
        """Print the plan."""
        if self.plan.trials:
            show_table(self.listing(all=all))
        else:
            say(f"{self.plan.sweep}: no trials; this shard is empty")

    def listing(self, *, all: bool = False) -> Listing:
        """Return the summary, a table of the trials, and the reasons for unknown values."""
        frame = self._frame(all=all)
        return Listing(
            title=plan_summary(self.plan, self.estimate),
            frame=frame,
            keys=[str(name) for name in frame if name not in ("peak memory", "step", "time", "action")],
            units={},
            tones=TONES,
            notes=[line for note in self._notes(all=all) for line in note.split("\n") if line],
        )

    def _notes(self, *, all: bool) -> list[str]:
        """Return how many trials the table leaves out, why values are unknown, and what a run installs."""
        left = 0 if all else len(self.plan.trials) - MOST_ROWS
        found = (self._peak(planned) for planned in self.plan.trials)
        peaks = dict.fromkeys(f"peak memory ?: {one.reason}" for one in found if isinstance(one, Refusal))
        times = dict.fromkeys(f"time ?: {one.reason}" for one in self.estimate.trials.values() if one.reason)
        steps = [self.steps.of(planned) for planned in self.plan.trials] if self.steps else []
        sources = dict.fromkeys(f"step: {one.source}" for one in steps if isinstance(one, StepEstimate))
        reasons = dict.fromkeys(f"step ?: {one.reason}" for one in steps if isinstance(one, Refusal))
        return [
            f"... and {left} more; --all lists them, --format json has more" if left > 0 else "",
            "\n".join([*islice(peaks, MOST_REASONS), *islice(times, MOST_REASONS)]),
            "\n".join([*islice(sources, MOST_REASONS), *islice(reasons, MOST_REASONS)]),
            self._software(),
        ]

    def _software(self) -> str:
        wanted = software_of(self.plan)
        if not wanted:
            return ""
        missing = [software for software in wanted if not is_made(software)]
        found = f"a run installs {', '.join(missing)} first" if missing else "their environments are ready"
        return f"software: {found}; peak memory is predicted with the installed torch"

    def _frame(self, *, all: bool) -> pd.DataFrame:
        trials, steps = self.plan.trials, self.steps
        stepping = ["step"] if steps and any(isinstance(steps.of(one), StepEstimate) for one in trials) else []
        varying = varying_fields([planned.trial.config for planned in trials])
        names = [name for name in varying if name not in fields_with(Role.LIMIT)]
        repeated = ["process"] if any(planned.trial.config.processes > 1 for planned in trials) else []
        short = short_values([one.trial.config for one in trials])
        rows = [
            [
                *(short.get(name, {}).get(value := getattr(one.trial.config, name), label(value)) for name in names),
                *(_process_text(one) for _ in repeated),
                one.trial_id[: SHORT_ID if on_terminal() else None],
                self._peak_text(one),
                *(self._step_text(one) for _ in stepping),
                self._seconds_text(one),
                one.action,
            ]
            for one in (trials if all else trials[:MOST_ROWS])
        ]
        columns = [*names, *repeated, "trial", "peak memory", *stepping, "time", "action"]
        return pd.DataFrame(rows, columns=columns, dtype=object)

    def _peak(self, planned: PlannedTrial) -> Prediction | Bounds | Refusal:
        if self.predictions is None:
            return Refusal("--no-predict")
        return self.predictions.of(planned.trial, planned.environment.device_name)

    def _peak_text(self, planned: PlannedTrial) -> str:
        found = self._peak(planned)
        if isinstance(found, Bounds):
            return between(found)
        return gib(found.peak) if isinstance(found, Prediction) else "?"

    def _step_text(self, planned: PlannedTrial) -> str:
        found = self.steps.of(planned) if self.steps else None
        if isinstance(found, StepEstimate):
            low, high = (f"{seconds * 1e3:.3g}" for seconds in found.between)
            return f"{found.seconds * 1e3:.3g} ms ({low} to {high})"
        return "?" if found else "-"

    def _seconds_text(self, planned: PlannedTrial) -> str:
        found = self.estimate.trials.get(planned.index)
        if found is None:
            return "-"
        return "?" if found.reason else format_seconds(found.seconds)


def _process_text(planned: PlannedTrial) -> str:
    if planned.action == "run":
        return f"{planned.process} of {planned.trial.config.processes}"
    return str(planned.trial.config.processes) if planned.action == "stored" else "-"


def frontier_as_json(found: list[Frontier]) -> list[dict[str, object]]:
    """Return one JSON entry per configuration."""
    names = ("dimension", "largest", "possible", "reason", "device_name")
    return [
        {"config": asdict(one.config), **{name: getattr(one, name) for name in names}, "budget_bytes": one.budget.bytes}
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
