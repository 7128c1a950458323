"""What planning asks of the process that predicts steps, and its answers: records that travel as JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from lmsweep.trials.analytic.memory_bounds import Bounds
from lmsweep.trials.analytic.memory_prediction import Dimension, Prediction
from lmsweep.trials.spec.config import StepFlops, TrialConfig
from lmsweep.trials.spec.workloads import Subject

Want = Literal["memory", "bounds", "verdict", "largest", "operators"]
"""memory: the predicted peak. bounds: bounds if they decide whether the trial fits, else the peak. verdict: whether it
fits despite fragmentation. largest: the largest `dimension` in each memory limit. operators: those of a step; with
`largest`, of a step of that size."""

Rows = Sequence[Sequence[object]]
"""The operators of a step: of each, the values of its fields in order, without their names."""


class MemoryLimit(NamedTuple):
    """A device, by our name or the driver's, and the bytes of it that PyTorch's caching allocator may use."""

    device_name: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked about the step of one configuration."""

    config: TrialConfig
    subject: Subject = "model"
    """What is in memory: the model, or attention alone."""
    limits: tuple[MemoryLimit, ...] = ()
    wants: tuple[Want, ...] = ("memory",)
    dimension: Dimension = "batch_size"
    """Whose largest value is wanted."""
    is_trial: bool = True
    """Whether a process builds the whole model before it divides it, as a trial does; training tools load its parts."""
    kept: "Answer | None" = None
    index: int = 0
    """Its place among the questions."""


class Largest(NamedTuple):
    """The largest value of a dimension that fits a memory limit; 0 if not even the smallest does."""

    sure: int
    possible: int
    """The largest that may fit."""
    peak: int | None = None
    """Bytes of the allocator's blocks at the value `sure`; if that is 0, at the smallest value."""
    lasting: int | None = None
    """Bytes of weights, gradients and the optimizer's state, which neither batch nor context changes."""
    operators: Rows = ()
    """Operators of a step with the largest value that is sure."""


class NextSizeUp(NamedTuple):
    """Simulated training at the next larger batch, with batches that differ: how many runs run out of memory."""

    size: int
    """The next larger batch_size or batch_tokens."""
    steps: int
    runs: int
    """Runs of `steps` steps, each with another order of documents. All of them fit with the largest size that fits."""
    failed: float
    """Share of runs in which memory ran out with the next size."""
    failed_steps: float
    """Steps of a run that need more than there is with that size, on average."""
    expandable: int | None
    """The largest size with the allocator's expandable segments; None if the trial has them already."""


@dataclass(frozen=True, kw_only=True)
class ManySteps:
    """Whether memory lasts for runs of `steps` steps whose batches differ, each run with another order of documents."""

    steps: int
    runs: int
    failed: int
    """Runs in which memory ran out."""
    failed_steps: float
    """Steps of a run that need more than there is, on average."""
    first_failed: int | None
    """The earliest step in which it did, from 1."""
    peak_allocated: int
    """Bytes of the allocator's blocks in the first run, until its end."""
    peak_reserved: int
    """Bytes that the allocator reserved in it."""
    retries: int
    """Times that the allocator released its cache in it."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is known of what was asked."""

    prediction: Prediction | None = None
    bounds: Bounds | None = None
    is_of_plan: bool = False
    """Whether the bounds were deduced from other trials of this plan, so that another plan must not reuse them."""
    flops: StepFlops | None = None
    operators: Rows = ()
    shapes: tuple[tuple[int, int, Rows], ...] = ()
    """Of some steps of a trial whose batches differ: the rows and the width of the batch, and the operators."""
    fits: bool | None = None
    """None if the prediction is too uncertain to decide."""
    many_steps: ManySteps | None = None
    """Of a trial whose batches differ, beside `fits`."""
    largest: tuple[Largest, ...] = ()
    """The largest value within each memory limit."""
    beyond: tuple[NextSizeUp, ...] = ()
    """Within each memory limit, where batches differ."""
    reason: str | None = None
    """Why the memory is not known."""
    untimed: str | None = None
    """Why the operators are not known."""
    refused: str | None = None
    """Why the request is wrong."""
    failure: str | None = None
    """What went wrong in predicting."""

    @property
    def why_not(self) -> str | None:
        return self.reason or self.refused or self.failure

    @property
    def why_no_step(self) -> str | None:
        return self.untimed or self.refused or self.failure


def as_text(record: object) -> str:
    """Return questions, answers and what they consist of as JSON on one line."""
    return json.dumps(record, default=_fields_of)


def _fields_of(record: object) -> dict[str, Any]:
    """Return a record's fields: of questions and answers without empty ones; of others all, as `**` rebuilds them."""
    omits = isinstance(record, Question | Answer)
    return {name: value for name, value in vars(record).items() if not omits or (value is not None and value != ())}


def question_of(values: dict[str, Any], index: int = 0) -> Question:
    limits = tuple(MemoryLimit(*one) for one in values.pop("limits", ()))
    kept = answer_of(values.pop("kept")) if "kept" in values else None
    records = {"config": TrialConfig(**values.pop("config")), "wants": tuple(values.pop("wants"))}
    return Question(**values | records | {"index": index}, limits=limits, kept=kept)


def answer_of(values: dict[str, Any]) -> Answer:
    """Return the answer that JSON has. Raises TypeError if it has another's fields."""
    records = {"prediction": Prediction, "bounds": Bounds, "flops": StepFlops, "many_steps": ManySteps}
    values = {name: records[name](**value) if name in records else value for name, value in values.items()}
    tuples = {"largest": Largest, "beyond": NextSizeUp}
    return Answer(**values | {name: tuple(kind(*one) for one in values.get(name, ())) for name, kind in tuples.items()})
