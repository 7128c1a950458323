"""One answer: what fits on a kind of GPU by one method, how fast it is and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import Field, computed_field

from lmsweep.trials.analytic.prediction_question import NextSizeUp

TRAINS = "as lmsweep's own loop trains, or with --trainer as that trainer does"


class Interval(NamedTuple):
    """A prediction and its 95 % interval."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What is predicted of one method on some GPUs of one kind."""

    device_name: str
    gpus: int
    method: str
    recipe: str
    """Types of weights and of the optimizer's state."""
    checkpointing: str
    batch: int | None
    """Largest batch of each GPU; 0 if not even one sequence fits, None if it is not predicted."""
    peak_bytes: int | None
    """At that batch, or at one sequence."""
    peak_bytes_of_others: tuple[int, int, int] | None = None
    """What other trainers need for the same step: middle, least and most."""
    budget_bytes: int
    """What a step may use of a GPU."""
    lasting_bytes: int | None = None
    """Of weights, gradients and the optimizer's state, which neither batch nor context changes."""
    step_seconds: Annotated[
        float | None, Field(description="Of a step at this batch, on average, as lmsweep's own loop trains.")
    ] = None
    tokens_per_second: float | None = None
    """Of all GPUs."""
    tokens_per_second_between: tuple[float, float] | None = None
    """95 % interval, as lmsweep's own loop trains."""
    tokens_per_second_of_others: float | None = None
    """As other trainers train, or the one that was named."""
    tokens_per_second_of_others_between: tuple[float, float] | None = None
    """95 % interval of that."""
    hours: Annotated[float | None, Field(description=f"Of the tokens asked for, {TRAINS}.")] = None
    hours_between: Annotated[tuple[float, float] | None, Field(description=f"95 % interval, {TRAINS}.")] = None
    dollars: Annotated[float | None, Field(description=f"Of these hours, {TRAINS}.")] = None
    """None without a price or tokens."""
    dollars_between: Annotated[tuple[float, float] | None, Field(description=f"95 % interval, {TRAINS}.")] = None
    padding: float | None = None
    """Share of tokens that are padding, where batches differ by their lengths."""
    beyond: NextSizeUp | None = None
    """What happens beyond this batch, where batches differ."""
    reason: str | None = None
    """Why something is not known."""
    plan: Annotated[str | None, Field(description="The command that predicts its time and bounds of its memory.")] = (
        None
    )
    """Only for compiled steps of several GPUs, whose largest batch is not predicted."""
    source: str | None = None
    """Where the rates come from."""
    remedy: str | None = None
    """What would make it fit, if it does not."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def fits(self) -> bool | None:
        return None if self.batch is None else self.batch > 0

    @computed_field(description="Whether it fits with others, too; null: perhaps.")  # type: ignore[prop-decorator]
    @property
    def fits_of_others(self) -> bool | None:
        if self.peak_bytes_of_others is None:
            return None
        _, low, high = self.peak_bytes_of_others
        return True if high <= self.budget_bytes else False if low > self.budget_bytes else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def missing_bytes(self) -> int:
        # Of one sequence; 0 if it fits, or if its peak does and only gaps between blocks are in the way.
        return max(0, (self.peak_bytes or 0) - self.budget_bytes) if self.batch == 0 else 0

    def rate(self, trainer: str | None) -> Interval | None:
        """Return tokens a second and their interval, as lmsweep's own loop trains or the trainer named."""
        if trainer:
            return _interval(self.tokens_per_second_of_others, self.tokens_per_second_of_others_between)
        return _interval(self.tokens_per_second, self.tokens_per_second_between)

    def spent(self) -> Interval | None:
        """Return dollars and their interval."""
        return _interval(self.dollars, self.dollars_between)

    def rank(self, trainer: str | None) -> tuple[float, ...]:
        """Return what sorts the best first: the cheapest, the fastest, what lacks least, what is not predicted."""
        if self.fits:
            rate = self.rate(trainer)
            return (0, self.dollars is None, self.dollars or 0.0, -rate.middle if rate else 0.0)
        return (1, self.fits is None, self.missing_bytes, 0.0)


def plans(found: Sequence[Fit]) -> list[str]:
    """Return the command that plans each method and number of GPUs whose largest batch is not predicted."""
    grouped: dict[tuple[str, int], list[Fit]] = {}
    for one in found:
        if one.plan:
            grouped.setdefault((one.method, one.gpus), []).append(one)
    said = []
    for (method, gpus), (first, *others) in grouped.items():
        names = dict.fromkeys(one.device_name for one in others)
        also = f"; --for also takes {', '.join(f'{gpus}x{name}' for name in names)}" if names else ""
        where = f"its time, and bounds of its memory, at one sequence of each{also}"
        said.append(f"{method} on {gpus} GPUs: {first.reason} here; {where}: {first.plan}")
    return said


def _interval(middle: float | None, between: tuple[float, float] | None) -> Interval | None:
    return None if middle is None or between is None else Interval(middle, *between)


@dataclass(frozen=True, kw_only=True)
class FitsOutput:
    model: str
    context: int
    tokens: float | None
    trainer: str | None = None
    """Whose rates are those `of_others`, and whose hours and dollars; None: rates of all public ones."""
    assumed: Annotated[list[str], Field(description="What the prediction assumes, in sentences.")]
    fits: list[Fit]
    """The best first."""
