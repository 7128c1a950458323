"""One answer: what fits on a kind of GPU by one method, how fast it is and what it costs."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, computed_field

from lmsweep.trials.analytic.prediction_question import NextSizeUp


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
    """Middle, least and most that other trainers need for it."""
    budget_bytes: int
    """What a step may use of a GPU."""
    lasting_bytes: int | None = None
    """Of weights, gradients and the optimizer's state, which neither batch nor context changes."""
    tokens_per_second: float | None = None
    """Of all GPUs."""
    tokens_per_second_between: tuple[float, float] | None = None
    """95 % interval, as lmsweep's own loop trains."""
    tokens_per_second_of_others: float | None = None
    tokens_per_second_of_others_between: tuple[float, float] | None = None
    """95 % interval, as other trainers do, or the one named."""
    hours: float | None = None
    """Of the tokens asked for, as lmsweep's own loop trains."""
    hours_between: tuple[float, float] | None = None
    """95 % interval."""
    dollars: float | None = None
    """Of these hours; None without a price or tokens."""
    dollars_between: tuple[float, float] | None = None
    """95 % interval."""
    padding: float | None = None
    """Share of tokens, where batches differ by their lengths."""
    beyond: NextSizeUp | None = None
    """What happens beyond this batch, where batches differ."""
    reason: str | None = None
    """Why something is not known."""
    source: str | None = None
    """Where the rates come from."""
    remedy: str | None = None
    """What would make it fit, if it does not."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def fits(self) -> bool | None:
        return None if self.batch is None else self.batch > 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def missing_bytes(self) -> int:
        # For one sequence; 0 if it fits, or if only gaps between blocks are in the way.
        return max(0, (self.peak_bytes or 0) - self.budget_bytes) if self.batch == 0 else 0

    @property
    def rank(self) -> tuple[float, ...]:
        """The best first: the cheapest, then the fastest, then what lacks least."""
        if self.fits:
            priced = self.dollars is not None
            return (0, not priced, self.dollars or 0.0, -(self.tokens_per_second or 0.0))
        return (1, self.fits is None, self.missing_bytes, 0.0)


@dataclass(frozen=True, kw_only=True)
class FitsOutput:
    model: str
    context: int
    tokens: float | None
    trainer: str | None = None
    """Whose rates are those `of_others`; None: of all public ones."""
    assumed: Annotated[list[str], Field(description="What the prediction assumes, in sentences.")]
    fits: list[Fit]
    """The best first."""
