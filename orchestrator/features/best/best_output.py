"""The answer as a record: what `best --format json` prints and `lmsweep.best` returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lmsweep.orchestrator.features.best.answer import Answer, AxisEffect, Larger, LargestBatch, Scalar, scalar
from lmsweep.orchestrator.features.best.cell_costs import has_predicted_peak, workloads_of
from lmsweep.orchestrator.features.best.cells.cell_axes import DEVICE, job_words, value_of
from lmsweep.orchestrator.features.best.cells.cells import Cell
from lmsweep.orchestrator.features.best.cells.goal import Aim
from lmsweep.orchestrator.features.best.recipes.recipe import pytorch_snippet, trial_command
from lmsweep.trials.results.metrics import WALL_TIME
from lmsweep.trials.spec.identity import trial_id

NOT_ASKED = LargestBatch(None, "not asked for; --max-batch predicts it")


@dataclass(frozen=True, kw_only=True)
class BestCell:
    trial_id: str
    device_name: str
    settings: dict[str, Scalar]
    """The fields in which the cells of the job differ."""
    processes: int
    value: float | None
    """What was measured, in the unit of the goal."""
    step_seconds: float | None
    peak_bytes: float | None
    """Measured peak, or the predicted one if --max-batch or --subject-to asked for predictions; else null."""
    peak_is_predicted: bool
    dollars_per_million_tokens: float | None
    """null if the device has no price."""


@dataclass(frozen=True, kw_only=True)
class BeatenCell:
    cell: BestCell
    ratio: float
    """How many times better the winner is."""
    low: float
    high: float
    """The 95 % interval of `ratio`, the variation between processes included."""
    chance: float
    """Probability that the winner is better at all."""


@dataclass(frozen=True, kw_only=True)
class LargerCell:
    """The best cell that does not fit its device, or exceeds the limit."""

    cell: BestCell
    ratio: float
    """How many times better than the winner it is; below 1 if it is worse."""
    low: float
    high: float
    """The 95 % interval of `ratio`."""
    is_measured: bool


@dataclass(frozen=True, kw_only=True)
class BestOfJob:
    job: str
    """Model, context length and mode."""
    winner: BestCell
    low: float
    high: float
    """The 95 % interval of what the winner is believed to reach, in the unit of the goal."""
    can_tell: bool
    """Whether the winner is likely to be the best, up to 2 %."""
    wrong: float
    """Probability that another is more than 2 % better."""
    measured: int
    """Cells with a result: the winner, those in `beaten`, and those counted in `over_limit`; none of `failed`."""
    failed: int
    over_limit: int
    """Measured cells that exceed the limit, or whose memory is unknown."""
    beaten: list[BeatenCell]
    """The other measured cells within the limit, the best first."""
    front: list[BestCell]
    """The Pareto front of time, memory and money; the fastest first."""
    effects: list[AxisEffect]
    larger: LargerCell | None
    """null if all fit, or no estimate exists for the others."""
    largest_batch: int | None
    largest_batch_reason: str | None
    """Why it is not known."""
    command: str
    """Command that measures the winner again."""
    pytorch: str
    """Plain PyTorch code with the winner's settings."""


@dataclass(frozen=True, kw_only=True)
class BestOutput:
    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}
    goal: str
    unit: str
    peak_below_bytes: int | None
    """The limit; null without one."""
    jobs: list[BestOfJob]


def best_output(answers: Sequence[Answer], aim: Aim, largest: LargestBatch | None = None) -> BestOutput:
    """Return the answers as a record. largest: of the only winner, if it was asked for; None if there are several."""
    return BestOutput(
        goal=aim.goal.value,
        unit=aim.goal.unit,
        peak_below_bytes=aim.peak,
        jobs=[_of_job(one, largest or NOT_ASKED) for one in answers],
    )


def _of_job(answer: Answer, largest: LargestBatch) -> BestOfJob:
    low, high = sorted(map(answer.aim.goal.shown, answer.cost.interval))  # a lower cost is a higher speed
    return BestOfJob(
        job=job_words(answer.winner.config),
        winner=_cell(answer.winner, answer),
        low=low,
        high=high,
        can_tell=answer.can_tell,
        wrong=answer.wrong,
        measured=answer.measured,
        failed=answer.failed,
        over_limit=answer.over_limit,
        beaten=[
            BeatenCell(cell=_cell(one.cell, answer), ratio=one.ratio, low=one.low, high=one.high, chance=one.chance)
            for one in answer.beaten
        ],
        front=[_cell(one, answer) for one in answer.front],
        effects=[*answer.effects],
        larger=_larger(answer.larger, answer) if answer.larger else None,
        largest_batch=largest.batch,
        largest_batch_reason=largest.words if largest.batch is None else None,
        command=trial_command(answer.winner.config, workloads_of(answer.winner)),
        pytorch=pytorch_snippet(answer.winner.config),
    )


def _larger(one: Larger, answer: Answer) -> LargerCell:
    cell = _cell(one.cell, answer)
    return LargerCell(cell=cell, ratio=one.ratio, low=one.low, high=one.high, is_measured=one.is_measured)


def _cell(cell: Cell, answer: Answer) -> BestCell:
    cost, time = cell.cost(answer.aim), cell.values.get(WALL_TIME)
    return BestCell(
        trial_id=trial_id(cell.config),
        device_name=cell.environment.device_name,
        settings={name: scalar(value_of(cell, name)) for name in answer.names if name != DEVICE},
        processes=cell.processes,
        value=answer.aim.goal.shown(cost.median) if cost else None,
        step_seconds=time.median if time else None,
        peak_bytes=cell.peak,
        peak_is_predicted=has_predicted_peak(cell),
        dollars_per_million_tokens=cell.dollars(answer.aim),
    )
