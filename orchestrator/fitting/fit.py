"""One answer: what fits on a kind of GPU by one method, how fast it is and what it costs."""

from dataclasses import asdict, dataclass
from typing import Any


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
    budget_bytes: int
    """What a step may use of a GPU."""
    lasting_bytes: int | None = None
    """Of weights, gradients and the optimizer's state, which neither batch nor context changes."""
    tokens_per_second: float | None = None
    """Of all GPUs."""
    tokens_per_second_between: tuple[float, float] | None = None
    """95 % interval."""
    hours: float | None = None
    """Of the tokens asked for."""
    dollars: float | None = None
    """Of the tokens asked for; None without a price or tokens."""
    reason: str | None = None
    """Why something is not known."""
    source: str | None = None
    """Where the rates come from."""
    remedy: str | None = None
    """What would make it fit, if it does not."""

    @property
    def fits(self) -> bool | None:
        return None if self.batch is None else self.batch > 0

    @property
    def missing_bytes(self) -> int:
        """Bytes that it lacks for one sequence; 0 if it fits, or if only gaps between blocks are in the way."""
        return max(0, (self.peak_bytes or 0) - self.budget_bytes) if self.batch == 0 else 0

    def as_values(self) -> dict[str, Any]:
        """Return it for JSON, with what follows from its fields; `reason` says why something is null."""
        return asdict(self) | {"fits": self.fits, "missing_bytes": self.missing_bytes}

    @property
    def rank(self) -> tuple[float, ...]:
        """The best first: the cheapest, then the fastest, then what lacks least."""
        if self.fits:
            priced = self.dollars is not None
            return (0, not priced, self.dollars or 0.0, -(self.tokens_per_second or 0.0))
        return (1, self.fits is None, self.missing_bytes, 0.0)
