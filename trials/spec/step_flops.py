"""FLOPs of one iteration of a model without a closed form."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StepFlops:
    """FLOPs of one iteration, of the batch and context length of the configuration; null with the reason if unknown."""

    forward: int | None = None
    """FLOPs of forward and loss."""
    backward: int | None = None
    """FLOPs of backward; None also if the mode has none."""
    reason: str | None = None
    """Why they are unknown; None if they are known."""

    def of(self, phase: str) -> int | None:
        """FLOPs of forward, backward or the whole step; None for others. The optimizer has no matrix products."""
        if self.forward is None:
            return None
        return {"forward": self.forward, "backward": self.backward, "step": self.forward + (self.backward or 0)}.get(
            phase
        )
