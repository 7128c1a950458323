"""What `plan --format json` prints."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.features.plan.fleet import fleet_of
from lmsweep.orchestrator.planning import plan as planning
from lmsweep.orchestrator.planning.largest_fit import Frontier
from lmsweep.orchestrator.planning.memory_predictions import Predictions
from lmsweep.orchestrator.planning.plan_estimate import PlanEstimate
from lmsweep.orchestrator.planning.step_estimate import Estimated, StepEstimate, StepEstimates
from lmsweep.orchestrator.planning.time_estimate import Estimate
from lmsweep.orchestrator.predicting.varied_times import padding_of
from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import Prediction
from lmsweep.trials.analytic.prediction_question import ManySteps
from lmsweep.trials.analytic.prices import Price
from lmsweep.trials.analytic.rates.intervals import Sure, peak_of_others
from lmsweep.trials.lengths.recompiling import recompiles
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.quantities import gib

NO_SECONDS = {"stored": "it is already measured", "predicted_oom": "it will not run", "unsupported": "it will not run"}
"""Why a trial with this action takes no time."""


class PlannedTrial(BaseModel):
    # A model, not a dataclass: it knows which of its fields it was given, and only those are printed.
    model_config = ConfigDict(extra="forbid", frozen=True)

    trial_id: str
    config: TrialConfig
    workloads: list[str]
    action: planning.Action
    reason: str | None
    process: int | None
    device_name: str
    predicted_peak_bytes: int | None
    predicted_peak_reason: str | None
    predicted_peak_bytes_of_others: tuple[int, int, int] | None = Field(
        None, description="Of a GPU: middle, least and most that other trainers need, by public stacks."
    )
    padding: float | None = Field(None, description="Share of tokens, where batches differ by `lengths`.")
    expected_recompiles: int | None = Field(None, description="Graphs compiled after the first, for other batches.")
    many_steps: ManySteps | None = Field(None, description="Only of a GPU, where batches differ by `lengths`.")
    expected_seconds: float | None
    expected_seconds_reason: str | None
    expected_setup_seconds: float | None = Field(
        None, description="Of `expected_seconds`, what is no step: this field and the next where a step is predicted."
    )
    expected_steps: float | None = Field(
        None, description="How many steps of `expected_step_seconds` the rest is, profiled ones included."
    )
    expected_step_seconds: float | None = Field(
        None, description="This field and the next: only of trials whose workloads measure steps of a GPU."
    )
    expected_step_seconds_between: tuple[float, float] | None = None
    expected_step_seconds_quantiles: tuple[float, float] | None = Field(
        None, description="Median and 99th percentile, where batches differ by `lengths`; the mean is above."
    )
    expected_step_seconds_of_others: Sure | None = Field(
        None, description="Middle and interval, by public stacks, or --trainer."
    )
    expected_exposed_seconds: float | None = None
    expected_step_source: str | None = None
    expected_step_reason: str | None = None
    expected_exposed_parts: dict[str, float] | None = Field(
        None, description="This field and the next: only of several nodes."
    )
    expected_tokens_per_second: float | None = None
    expected_dollars_per_billion_tokens: float | None = None
    worth_up_to_gpus: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlanOutput:
    sweep: str
    trials: list[PlannedTrial]
    counts: dict[planning.Action, int]
    expected_seconds: float | None
    expected_seconds_between: tuple[float, float] | None
    expected_seconds_reason: str | None
    expected_dollars: float | None
    expected_dollars_reason: str | None


@dataclass(frozen=True, kw_only=True)
class FrontierOutput:
    """`plan --max-batch` and `--max-context`"""

    frontier: list[Frontier]


Printed = PlanOutput | FrontierOutput


def plan_output(
    plan: planning.Plan,
    estimate: PlanEstimate,
    predictions: Predictions | None = None,
    steps: StepEstimates | None = None,
    prices: Sequence[Price] = (),
) -> PlanOutput:
    """Return the trials, and time and dollars in total; beside each null is its reason."""
    no_dollars = None
    if estimate.dollars is None:
        no_dollars = "--price was not given"
    elif estimate.unpriced:
        no_dollars = f"no price for {', '.join(estimate.unpriced)}"
    trials = []
    for planned in plan.trials:
        peak, step = peak_of(planned, predictions), steps.of(planned) if steps else None
        no_peak = peak.reason if isinstance(peak, Refusal) else None
        if isinstance(peak, Bounds):
            no_peak = f"{between(peak)}, {peak.source}"
        no_seconds = NO_SECONDS.get(planned.action) or estimate.trials[planned.index].reason
        trials.append(
            PlannedTrial(
                trial_id=planned.trial_id, config=planned.trial.config, workloads=[*planned.trial.workloads],
                action=planned.action, reason=planned.reason, device_name=planned.environment.device_name,
                process=planned.process if planned.action == "run" else None,
                predicted_peak_bytes=peak.peak if isinstance(peak, Prediction) else None,
                predicted_peak_reason=no_peak,
                expected_seconds=None if no_seconds else estimate.trials[planned.index].seconds,
                expected_seconds_reason=no_seconds,
                **_length_fields(planned, predictions),
                **_other_trainers_fields(planned, peak),
                **_time_fields(None if no_seconds else estimate.trials[planned.index]),
                **_step_fields(step),
                **_fleet_fields(planned, step, prices),
            )
        )  # fmt: skip
    return PlanOutput(
        sweep=plan.sweep,
        trials=trials,
        counts=Counter(planned.action for planned in plan.trials),
        expected_seconds=None if estimate.reason else estimate.seconds,
        expected_seconds_between=None if estimate.reason else estimate.between,
        expected_seconds_reason=estimate.reason,
        expected_dollars=None if estimate.unpriced or estimate.reason else estimate.dollars,
        expected_dollars_reason=estimate.reason or no_dollars,
    )


def peak_of(planned: planning.PlannedTrial, predictions: Predictions | None) -> Prediction | Bounds | Refusal:
    """Return the predicted memory of a trial, or why it is unknown."""
    return predictions.of(planned.trial, planned.environment.device_name) if predictions else Refusal("--no-predict")


def _length_fields(planned: planning.PlannedTrial, predictions: Predictions | None) -> dict[str, Any]:
    """Return what follows from the lengths of documents; empty where all batches are alike."""
    if not planned.trial.config.varies:
        return {}
    many_steps = predictions.many_steps(planned.trial, planned.environment) if predictions else None
    config = planned.trial.config
    return {"padding": padding_of(config), "expected_recompiles": recompiles(config), "many_steps": many_steps}


def _other_trainers_fields(planned: planning.PlannedTrial, peak: Prediction | Bounds | Refusal) -> dict[str, Any]:
    """Return the memory that other trainers need; empty for a CPU, or if no peak is known."""
    if not isinstance(peak, Prediction) or planned.trial.config.device_type != "cuda":
        return {}
    return {"predicted_peak_bytes_of_others": peak_of_others(peak.peak)}


def _time_fields(estimate: Estimate | None) -> dict[str, Any]:
    """Return the parts of a trial's time: predicted steps, and the rest. Empty if results or a time limit give it."""
    if estimate is None or estimate.steps is None:
        return {}
    return {"expected_setup_seconds": estimate.setup, "expected_steps": estimate.steps}


def _step_fields(step: Estimated | None) -> dict[str, Any]:
    """Return what is known of a step, or why nothing is; empty if no step is measured, or no GPU is there."""
    if step is None:
        return {}
    known = step if isinstance(step, StepEstimate) else None
    fields = {
        "expected_step_seconds": known and known.seconds,
        "expected_step_seconds_between": known and known.between,
        "expected_step_seconds_of_others": known and known.others,
        "expected_exposed_seconds": known and known.exposed,
        "expected_step_source": known and known.source,
        "expected_step_reason": step.reason if isinstance(step, Refusal) else None,
    }
    if known and known.quantiles:
        fields["expected_step_seconds_quantiles"] = known.quantiles
    return fields


def _fleet_fields(planned: planning.PlannedTrial, step: Estimated | None, prices: Sequence[Price]) -> dict[str, Any]:
    """Return communication, throughput and price of a trial with several ranks; empty for a single process."""
    fleet = fleet_of(planned, step, prices) if isinstance(step, StepEstimate) else None
    if not fleet or not isinstance(step, StepEstimate):
        return {}
    return {
        "expected_exposed_parts": step.parts,
        "expected_tokens_per_second": fleet.tokens_per_second,
        "expected_dollars_per_billion_tokens": fleet.dollars,
        "worth_up_to_gpus": fleet.worth,
    }


def between(bounds: Bounds) -> str:
    """Return `38.4 to 58.7 GiB`, `at least ...`, `at most ...` or `?`."""
    low, high = (gib(end) if end is not None else None for end in (bounds.low, bounds.high))
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}" if high else "?"
