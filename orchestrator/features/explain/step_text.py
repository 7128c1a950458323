"""Writes where the predicted time of a step goes: by part of the model and class of operators, with each source."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
from pydantic import Field, SerializeAsAny

from lmsweep.analysis.tables.listing import Listing
from lmsweep.orchestrator.planning.plan import Plan, PlannedTrial
from lmsweep.orchestrator.planning.step_estimate import StepEstimate
from lmsweep.trials.analytic.rates.intervals import Sure
from lmsweep.trials.analytic.rates.step_time import StepTime
from lmsweep.trials.spec.config import RequestError
from lmsweep.trials.spec.quantities import ms

MOST_PARTS = 40
"""Rows of the table; the last one sums up all parts, those that are left out, too."""
LEAST_EXPOSED = 1e-6
"""Seconds of exposed time below which a part has no line."""


@dataclass(frozen=True, kw_only=True)
class ClassOfOperators:
    seconds: float
    source: str


@dataclass(frozen=True, kw_only=True)
class StepOutput:
    """`plan --explain`"""

    trial_id: str
    device_name: str
    # A step in lmsweep's own loop and its interval, then a step in other trainers (public ones, or the named one).
    expected_step_seconds: float
    expected_step_seconds_between: tuple[float, float]
    expected_step_seconds_of_others: Sure
    measured_per_predicted: float  # steps that were measured, over the sum of their operators
    host_seconds: float
    device_seconds: float
    collectives_seconds: float
    exposed_seconds: float  # what communication adds to the step
    launches: int
    flops: SerializeAsAny[float]
    parts: Annotated[
        Mapping[str, Mapping[str, float]], Field(description="Part of the model -> class of operators -> seconds.")
    ]
    classes: dict[str, ClassOfOperators]
    beyond_autocast: Annotated[
        Mapping[str, float],
        Field(description="Part of the model that computes in float32 all the same -> seconds that bf16_pure saves."),
    ]


def explained(time: StepTime) -> Mapping[str, Mapping[str, float]]:
    """Part of the model -> class -> seconds of the device, the longest part first."""
    in_order = time.by(lambda one: one.operator.module or "outside of modules")
    seconds: dict[str, dict[str, float]] = {name: defaultdict(float) for name in in_order}
    for one in time.parts:
        seconds[one.operator.module or "outside of modules"][one.kind] += one.seconds
    return seconds


def step_output(planned: PlannedTrial, estimate: StepEstimate) -> StepOutput:
    """Return one trial's predicted step for programs."""
    time = estimate.time
    return StepOutput(
        trial_id=planned.trial_id, device_name=planned.environment.device_name,
        expected_step_seconds=estimate.seconds, expected_step_seconds_between=estimate.between,
        expected_step_seconds_of_others=estimate.others, measured_per_predicted=estimate.factor,
        host_seconds=time.launching, device_seconds=time.computing,
        collectives_seconds=math.fsum(one.seconds for one in time.parts if one.kind == "collectives"),
        exposed_seconds=estimate.exposed,
        launches=sum(one.operator.count for one in time.parts),
        flops=sum(one.operator.count * one.operator.flops for one in time.parts),
        parts=explained(time),
        classes={
            kind: ClassOfOperators(seconds=seconds, source=time.sources[kind])
            for kind, seconds in time.by(lambda one: one.kind).items()
        },
        beyond_autocast=estimate.beyond_autocast,
    )  # fmt: skip


def step_listing(planned: PlannedTrial, estimate: StepEstimate, trainer: str | None = None) -> Listing:
    """Return one trial's predicted step as a table: a row for each part of the model, a column for each class of
    operators. trainer: the one whose step `estimate.others` predicts; None: public trainers in general."""
    parts = explained(estimate.time)
    classes = list(estimate.time.by(lambda one: one.kind))
    rows = [
        [name, *(by_class.get(one) for one in classes), sum(by_class.values())]
        for name, by_class in list(parts.items())[:MOST_PARTS]
    ]
    total = [sum(part.get(one, 0.0) for part in parts.values()) for one in classes]
    rows.append(["all", *total, sum(total)])
    low, high = map(ms, estimate.between)
    words = f"{ms(estimate.seconds)} ms a step ({low} to {high})"
    return Listing(
        title=f"{planned.trial_id} on {planned.environment.device_name}: {words}",
        frame=pd.DataFrame(rows, columns=["part", *classes, "device time"]),
        keys=["part"],
        units=dict.fromkeys([*classes, "device time"], "s"),
        together=(*classes, "device time"),
        notes=_notes(estimate, trainer),
    )


def _notes(estimate: StepEstimate, trainer: str | None) -> list[str]:
    runs = f"as {trainer} runs it" if trainer else "as other trainers run it"
    middle, low, high = map(ms, estimate.others)
    time, launches = estimate.time, Counter[str]()
    for one in time.parts:
        launches[one.operator.phase] += one.operator.count
    bound = "the host decides" if time.is_host_bound else "the device decides"
    phases = ", ".join(f"{count} in {phase}" for phase, count in launches.items())
    return [
        *([estimate.advice] if estimate.advice else []),
        f"host: {ms(time.launching)} ms for {launches.total()} launches ({phases}); {bound}",
        f"host: {time.host_source}",
        f"steps that were measured took {estimate.factor:.2f} times as long as the sum of their operators",
        f"{runs}: {middle} ms ({low} to {high}), learned from public steps; "
        "the first interval is of lmsweep's own loop",
        *(f"exposed, {name}: {ms(part)} ms" for name, part in estimate.parts.items() if part >= LEAST_EXPOSED),
        *(f"{kind}: {source}" for kind, source in time.sources.items()),
    ]


def chosen(plan: Plan, text: str) -> PlannedTrial:
    """Return the trial whose identifier begins with this text. Raises RequestError unless one does."""
    alike = {one.trial_id: one for one in plan.trials if text and one.trial_id.startswith(text.lower())}
    if len(alike) == 1:
        return next(iter(alike.values()))
    what = f"begins the identifiers {', '.join(alike)}" if alike else f"no trial of {plan.sweep} has this identifier"
    raise RequestError(f"--explain {text}: {what}; `lmsweep plan {plan.sweep} --all` shows them")
