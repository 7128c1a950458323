"""Finds the largest batch, or the longest context, that fits on a device."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from lmsweep.orchestrator.planning.memory_budget import Budget
from lmsweep.orchestrator.planning.prediction_process import Answers
from lmsweep.trials.analytic.memory_prediction import Dimension, with_value
from lmsweep.trials.analytic.prediction_question import MemoryLimit, NextSizeUp, Question
from lmsweep.trials.spec.config import TrialConfig
from lmsweep.trials.spec.reference import Code


@dataclass(frozen=True, kw_only=True)
class Frontier:
    config: TrialConfig
    """The configuration with the largest value that fits, or with 1."""
    dimension: Dimension
    largest: Annotated[int | None, Field(description="What certainly fits.")]
    """0 if not even 1 does, None if it cannot be predicted."""
    possible: Annotated[int | None, Field(description="What may fit.")]
    """Above `largest` where the prediction has a margin."""
    reason: str | None
    """Why it cannot be predicted."""
    device_name: str
    budget_bytes: int
    budget_words: Annotated[str, Field(exclude=True)]
    beyond: Annotated[NextSizeUp | None, Field(description="Only where batches differ by `lengths`.")] = None

    @property
    def words(self) -> str | None:
        return None if self.largest is None else lasting_words(self.dimension, self.largest, self.beyond)


def lasting_words(dimension: str, size: int, beyond: NextSizeUp | None) -> str | None:
    """Return how often a size, and the next larger one, fit many batches that differ; None if all are alike."""
    if beyond is None:
        return None
    said = f"no {dimension} fits every batch"
    if size:
        said = f"{dimension} {size:,} fits every batch in {beyond.runs} runs of {beyond.steps:,} steps"
    if beyond.failed:
        some = f"{beyond.failed:.0%} of runs, {beyond.failed_steps:.3g} of {beyond.steps:,} steps"
        said += f"; {beyond.size:,} runs out in {some if beyond.failed < 1 else 'every run'}"
    else:
        said += f"; {beyond.size:,} may run out; the prediction does not decide it"
    return said if beyond.expandable is None else f"{said}; expandable segments: {beyond.expandable:,}"


def dimension_of(config: TrialConfig, dimension: Dimension) -> Dimension:
    """Return the dimension itself, or instead of `batch_size` the budget of tokens that sets it."""
    return "batch_tokens" if dimension == "batch_size" and config.batching == "token_budget" else dimension


def frontiers(places: dict[TrialConfig, tuple[str, Budget]], dimension: Dimension, code: Code | None) -> list[Frontier]:
    """Return the frontier of each configuration on the device of this name, within its budget."""
    questions = [
        Question(
            config=config,
            limits=(MemoryLimit(name, budget.bytes),),  # one limit, so `largest` and `beyond` have one value
            wants=("largest",),
            dimension=dimension_of(config, dimension),
        )
        for config, (name, budget) in places.items()
    ]
    found = []
    for (config, (device_name, budget)), answer in zip(places.items(), Answers(questions, code).wait(), strict=True):
        largest = answer.largest[0] if answer.largest else None
        sure = largest.sure if largest else None
        found.append(
            Frontier(
                config=with_value(config, dimension_of(config, dimension), sure or 1),
                dimension=dimension_of(config, dimension),
                largest=sure,
                possible=largest.possible if largest else None,
                reason=answer.why_not,
                device_name=device_name,
                budget_bytes=budget.bytes,
                budget_words=budget.words,
                beyond=answer.beyond[0] if answer.beyond else None,
            )
        )
    return found
